"""Texts of common English words, about one token each, the same on every machine."""

from __future__ import annotations

import random

WORDS = (
    "about above across after again against almost along already also always among amount answer around back "
    "because become been before began behind being below best better between beyond book both bring build built "
    "business call came change check city clear close cold come common company complete could country course cover "
    "current cut day deep different does done door down draw during each early earth east easy either else end "
    "engine enough even ever every example eye face fact fall family far fast father feel few field figure fill "
    "final find fine fire first fish follow food foot force form found four free friend from front full game gave "
    "general get give glass gold gone good great green ground group grow half hand hard have head hear heart heat "
    "heavy help here high hold home horse hot hour house however hundred idea important inch interest into iron "
    "island just keep kind king knew know land large last late laugh lay lead learn leave left less let letter life "
    "light like line list listen little live long look love low machine made main make man many map mark matter may "
    "mean measure men might mile mind minute miss money moon more morning most mother mountain move much music must "
    "name near need never new next night north note nothing notice now number object ocean off often old once one "
    "only open order other our out over own page paper part pass"
).split()


def text(rng: random.Random, count: int) -> str:
    """So many words."""
    return " ".join(rng.choices(WORDS, k=count))
