"""The plots of storyworld's stories, each a sequence of the sentences in `stories`."""

from __future__ import annotations

from . import lexicon as lex
from .stories import (
    Character,
    Thing,
    at,
    closing,
    habit,
    manner,
    meeting,
    new_place,
    new_thing,
    opening,
    said,
    scenery,
    subject,
    thanks,
    weather,
)
from .writer import Writer


def story(w: Writer) -> None:
    """One story: a hero, a plot, a friend, an end."""
    hero, home = opening(w)
    hobby = habit(w, hero)
    friend = w.choose((finding, losing, learning, sharing), (4.0, 3.0, 3.0, 2.0))(w, hero, home)
    closing(w, hero, friend, hobby)


def finding(w: Writer, hero: Character, home: str) -> Character:
    """The hero finds a thing and gives it back to whoever lost it."""
    weather(w)
    w.write(f"{hero.name} {w.choose(lex.GOALS)}")
    manner(w, hero)
    place = new_place(w, home)
    w.write(f"to the {place} .")
    scenery(w)
    thing = new_thing(w, place)
    subject(w, hero)
    spot = w.choose(lex.PLACES[place][1], lex.SPOT_WEIGHTS)
    w.write(f"found {thing.described} {spot} .")
    w.write("\n")
    friend = meeting(w, hero)
    subject(w, friend)
    w.write(f"looked {w.choose(lex.DEGREES)} {w.choose(lex.FEELINGS, lex.FEELING_WEIGHTS)} .")
    w.write(f"“ I lost my {thing.noun} , ”")
    said(w, "said", friend)
    w.write("\n")
    _giving_back(w, hero, friend, thing)
    return friend


def _giving_back(w: Writer, hero: Character, friend: Character, thing: Thing) -> None:
    w.write(
        w.choose(
            (
                f"{hero.name} gave the {thing.look} {thing.noun} to {friend.name} .",
                f"“ Here is your {thing.look} {thing.noun} , {friend.name} , ” said {hero.name} .",
                f"{hero.name} wanted to keep the {thing.noun} , but {hero.he} gave it back .",
            ),
            (4.0, 3.0, 2.0),
        )
    )
    thanks(w, hero, friend)


def losing(w: Writer, hero: Character, home: str) -> Character:
    """The hero loses a present, and a friend knows where it is."""
    w.write(f"{hero.his.capitalize()} {w.choose(lex.FAMILY)} gave {hero.him}")
    thing = new_thing(w, home)
    w.write(f"{thing.described} .")
    sky = weather(w)
    place = new_place(w, home)
    w.write(f"{hero.name} lost the {thing.noun} {at(place)} .")
    subject(w, hero)
    w.write(f"was {w.choose(lex.MOODS_OF[sky], lex.HOBBY_WEIGHTS)} and looked for it")
    manner(w, hero)
    w.write(".")
    scenery(w)
    w.write("\n")
    friend = meeting(w, hero)
    w.write(f"“ Have you seen my {thing.look} {thing.noun} ? ”")
    said(w, "asked", hero)
    w.write(
        f"“ {w.choose(lex.CALLS)} , {hero.name} , it is {w.choose(lex.PLACES[place][1], lex.SPOT_WEIGHTS)} ! ”"
    )
    said(w, "said", friend)
    w.write("\n")
    thanks(w, friend, hero)
    return friend


def learning(w: Writer, hero: Character, home: str) -> Character:
    """The hero wants to learn something that a friend can do."""
    skill = w.choose(lex.SKILLS)
    w.write(f"But {hero.he} could not {skill} . “ I wish I could {skill} , ”")
    said(w, "said", hero)
    scenery(w)
    w.write("\n")
    friend = meeting(w, hero)
    w.write(f"“ Can you teach me to {skill} , {friend.name} ? ”")
    said(w, "asked", hero)
    call = w.pick(lex.CALLS)
    w.write(
        w.choose(
            (f"“ {call} , {hero.name} ,", f"“ {call} , {hero.coat} {hero.animal} ,"), (3.0, 2.0)
        )
    )
    w.write(f"it is {w.choose(lex.JUDGEMENTS)} , ”")
    said(w, "said", friend)
    count = w.choose(lex.COUNTS, lex.COUNT_WEIGHTS)
    unit = w.choose(("days", "weeks"), (2.0, 1.0))
    w.write(f"They {w.choose(lex.EFFORTS)} for {count} {unit} {at(home)} . \n")
    w.write(
        f"After {count} {unit} , the {hero.animal} could {skill} as well as the {friend.animal} ."
    )
    return friend


def sharing(w: Writer, hero: Character, home: str) -> Character:
    """Somebody is hungry, and the hero has something to eat."""
    weather(w)
    food = w.choose(lex.FOODS)
    w.write(f"{hero.name} made some {food} .")
    scenery(w)
    w.write("\n")
    friend = meeting(w, hero)
    w.write(f"“ I am {w.choose(lex.DEGREES)} {w.choose(lex.FEELINGS, lex.FEELING_WEIGHTS)} , ”")
    said(w, "said", friend)
    w.write(f"“ Do you like {food} ? ”")
    said(w, "asked", hero)
    w.write(f"“ {w.choose(lex.CALLS)} , {hero.name} ! ”")
    said(w, "said", friend)
    place = new_place(w, home)
    w.write(f"They sat down {at(place)} and {w.choose(('shared', 'ate'))} the {food} . \n")
    subject(w, friend)
    w.write(f"told {hero.name} about {friend.his} {w.choose(lex.PRAISE)} {w.choose(lex.FAMILY)} .")
    thanks(w, hero, friend)
    return friend
