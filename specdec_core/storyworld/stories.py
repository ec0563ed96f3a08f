"""The sentences of storyworld's stories: who, where, what, and the words that come back later."""

from __future__ import annotations

from dataclasses import dataclass

from . import lexicon as lex
from .writer import Writer


@dataclass(frozen=True)
class Character:
    """Somebody in a story, named when introduced and recalled later."""

    name: str
    animal: str
    trait: str
    coat: str

    @property
    def he(self) -> str:
        return "she" if self.name in lex.GIRLS else "he"

    @property
    def his(self) -> str:
        return "her" if self.name in lex.GIRLS else "his"

    @property
    def him(self) -> str:
        return "her" if self.name in lex.GIRLS else "him"

    @property
    def described(self) -> str:
        return with_article(f"{self.trait} {self.coat} {self.animal}")


@dataclass(frozen=True)
class Thing:
    """A thing somebody finds, loses or gives."""

    look: str
    noun: str

    @property
    def described(self) -> str:
        return with_article(f"{self.look} {self.noun}")


def with_article(words: str) -> str:
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def at(place: str) -> str:
    return f"{lex.PLACES[place][0]} the {place}"


def new_place(w: Writer, other: str = "") -> str:
    """A place that is not `other`."""
    keep = [i for i, place in enumerate(lex.PLACE_NAMES) if place != other]
    weights = tuple(lex.PLACE_WEIGHTS[i] for i in keep)
    return w.pick(tuple(lex.PLACE_NAMES[i] for i in keep), weights)


def new_character(w: Writer, other: Character | None = None) -> Character:
    """Somebody whose name and animal are not those of `other`."""
    animals, names = lex.ANIMALS, lex.NAMES
    if other:
        animals = tuple(animal for animal in animals if animal != other.animal)
        names = tuple(name for name in names if name != other.name)
    name, animal = w.pick(names), w.pick(animals)
    trait = w.pick(lex.TRAITS, lex.TRAIT_WEIGHTS)
    return Character(name, animal, trait, w.pick(lex.COATS, lex.COAT_WEIGHTS))


def new_thing(w: Writer, place: str) -> Thing:
    """A thing as they are found at `place`."""
    look = w.pick(lex.LOOKS, lex.LOOK_WEIGHTS)
    return Thing(look, w.pick(lex.PLACES[place][2], lex.FIND_WEIGHTS))


def subject(w: Writer, who: Character) -> None:
    """How a sentence starts that goes on about `who`."""
    options = (who.name, who.he.capitalize(), f"The {who.animal}", f"The {who.coat} {who.animal}")
    w.write(w.choose(options, (4.0, 3.0, 2.0, 2.0)))


def manner(w: Writer, who: Character) -> None:
    """How `who` does what was just told; people keep to their trait."""
    w.write(w.choose(lex.MANNERS_OF[who.trait], lex.MANNER_WEIGHTS))


def said(w: Writer, verb: str, who: Character) -> None:
    w.write(f"{verb} {w.choose((who.name, f'the {who.animal}'), (3.0, 2.0))}")
    if w.choose((True, False), (3.0, 1.0)):
        manner(w, who)
    w.write(".")


def scenery(w: Writer) -> None:
    """A sentence about what is to be seen around."""
    w.write(f"The {w.choose(lex.SCENE_LOOKS)}")
    what = w.choose(lex.SCENERY_NAMES, lex.SCENERY_WEIGHTS)
    w.write(f"{what} {w.choose(lex.SCENERY[what], lex.HOBBY_WEIGHTS)}")
    w.write(f"{w.choose(lex.SCENE_MANNERS)} .")


def opening(w: Writer) -> tuple[Character, str]:
    """The hero and the hero's home."""
    hero, home = new_character(w), new_place(w)
    look = w.pick(lex.PLACE_LOOKS, lex.PLACE_LOOK_WEIGHTS)
    name, what, where = hero.name, hero.described, f"{lex.PLACES[home][0]} the {look} {home}"
    w.write(
        w.choose(
            (
                f"Once upon a time , there was {what} named {name} . {hero.he.capitalize()} lived {where} .",
                f"Once upon a time , {what} named {name} lived {where} .",
                f"Long ago , {where} , there lived {what} named {name} .",
                f"{name} was {what} who lived {where} .",
            ),
            (5.0, 3.0, 2.0, 2.0),
        )
    )
    return hero, home


def habit(w: Writer, hero: Character) -> str:
    """What the hero likes to do; animals differ."""
    hobby = w.pick(lex.HOBBIES_OF[hero.animal], lex.HOBBY_WEIGHTS)
    time = w.pick(lex.TIMES, lex.TIME_WEIGHTS)
    w.write(
        w.choose(
            (
                f"{hero.he.capitalize()} loved to {hobby} every {time} .",
                f"Every {time} , {hero.name} liked to {hobby} .",
                f"There was nothing {hero.he} liked more than to {hobby} in the {time} .",
            ),
            (5.0, 4.0, 2.0),
        )
    )
    return hobby


def weather(w: Writer) -> str:
    """How the next sentence begins; returns the weather, which decides the mood."""
    kind = w.pick(lex.WEATHER_NAMES, lex.WEATHER_WEIGHTS)
    time = w.pick(lex.TIMES, lex.TIME_WEIGHTS)
    w.write(w.choose((f"One {kind} {time} ,", f"Then , on a {kind} {time} ,"), (3.0, 2.0)))
    return kind


def meeting(w: Writer, hero: Character) -> Character:
    """A second character comes along."""
    friend = new_character(w, hero)
    w.write(
        w.choose(
            (
                f"Soon {hero.he} met {friend.described} named {friend.name} .",
                f"Just then , {friend.described} named {friend.name} came by .",
                f"On the way , {hero.name} saw {friend.name} , {friend.described} .",
            ),
            (4.0, 3.0, 2.0),
        )
    )
    return friend


def thanks(w: Writer, giver: Character, taker: Character) -> None:
    joy = w.pick(("danced", "laughed", "sang", "cried", "jumped"), (3.0, 3.0, 2.0, 1.0, 2.0))
    praise = w.pick(lex.PRAISE)
    w.write(
        w.choose(
            (
                f"“ Thank you , {praise} {giver.name} ! ” said {taker.name} and {joy} .",
                f"{taker.name} {joy} and said : “ You are a {praise} {giver.animal} , {giver.name} . ”",
                f"The {taker.animal} {joy} and thanked the {praise} {giver.animal} .",
            ),
            (4.0, 3.0, 2.0),
        )
    )


def closing(w: Writer, hero: Character, friend: Character, hobby: str) -> None:
    w.write(
        w.choose(
            (
                f"From that day on , {hero.name} and {friend.name} were best friends .",
                f"Then {hero.name} and {friend.name} {lex.PAST[hobby]} together until night .",
                f"That night , the {hero.animal} had a dream about the {friend.animal} .",
                f"And {hero.name} never forgot the {friend.trait} {friend.animal} .",
            ),
            (4.0, 3.0, 2.0, 2.0),
        )
    )
    if w.choose((True, False)):
        w.write("The end .")
