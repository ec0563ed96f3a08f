"""The words of storyworld that fill the slots of its sentences, and which go together."""

from __future__ import annotations

GIRLS = ("Mia", "Ada", "Lily", "Nora", "Ruby", "Zoe", "Ivy", "Ella", "Anna", "Rosa")
BOYS = ("Tim", "Ben", "Max", "Leo", "Sam", "Otto", "Finn", "Hugo", "Paul", "Emil")
NAMES = GIRLS + BOYS

# Each animal has its own hobbies; the first is its favourite.
HOBBIES_OF = {
    "fox": ("run", "explore", "sing", "hide"),
    "bear": ("sleep", "swim", "dance", "eat"),
    "mouse": ("hide", "read", "cook", "climb"),
    "owl": ("read", "fly", "sing", "sleep"),
    "rabbit": ("jump", "dig", "run", "dance"),
    "frog": ("swim", "jump", "sing", "sleep"),
    "cat": ("sleep", "climb", "paint", "hide"),
    "dog": ("run", "dig", "swim", "eat"),
    "hen": ("cook", "sing", "walk", "knit"),
    "goat": ("climb", "eat", "jump", "explore"),
    "duck": ("swim", "fly", "dance", "paint"),
    "dragon": ("fly", "cook", "explore", "knit"),
    "turtle": ("walk", "swim", "read", "paint"),
    "squirrel": ("climb", "dig", "dance", "run"),
    "hedgehog": ("knit", "walk", "dig", "read"),
    "otter": ("swim", "fish", "explore", "jump"),
}
ANIMALS = tuple(HOBBIES_OF)
HOBBY_WEIGHTS = (4.0, 3.0, 3.0, 2.0)

TRAITS = (
    "small", "brave", "shy", "young", "clever", "kind", "sleepy", "curious",
    "gentle", "funny", "lazy", "proud", "hungry", "quiet", "old", "lonely",
)  # fmt: skip
TRAIT_WEIGHTS = (5.0, 5.0, 5.0, 4.0, 4.0, 4.0, 4.0, 4.0, 3.0, 3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0)

COATS = (
    "brown", "grey", "white", "black", "little", "fat", "thin", "tall", "spotted", "yellow",
)  # fmt: skip
COAT_WEIGHTS = (4.0, 4.0, 3.0, 3.0, 3.0, 2.0, 2.0, 2.0, 1.0, 2.0)

# How somebody speaks and acts follows from the trait, however long ago it was told.
MANNERS_OF = {
    "small": ("softly", "quickly", "shyly", "gladly"),
    "brave": ("boldly", "loudly", "calmly", "quickly"),
    "shy": ("shyly", "softly", "slowly", "sadly"),
    "young": ("quickly", "happily", "loudly", "gladly"),
    "clever": ("calmly", "quickly", "boldly", "proudly"),
    "kind": ("kindly", "gladly", "softly", "warmly"),
    "sleepy": ("slowly", "softly", "calmly", "sadly"),
    "curious": ("quickly", "happily", "boldly", "loudly"),
    "gentle": ("softly", "kindly", "warmly", "calmly"),
    "funny": ("happily", "loudly", "gladly", "proudly"),
    "lazy": ("slowly", "calmly", "sadly", "happily"),
    "proud": ("proudly", "loudly", "boldly", "calmly"),
    "hungry": ("quickly", "sadly", "loudly", "gladly"),
    "quiet": ("softly", "calmly", "slowly", "shyly"),
    "old": ("slowly", "warmly", "kindly", "proudly"),
    "lonely": ("sadly", "shyly", "softly", "warmly"),
}
MANNER_WEIGHTS = (4.0, 3.0, 3.0, 2.0)
FEELINGS = ("sad", "worried", "tired", "cold", "afraid", "angry", "bored", "unhappy")
FEELING_WEIGHTS = (5.0, 4.0, 3.0, 2.0, 2.0, 1.0, 1.0, 2.0)
PRAISE = ("good", "great", "true", "dear", "wonderful", "lovely", "wise", "fine")

# What is to be seen around, and what it does.
SCENERY = {
    "birds": ("sang", "flew", "played", "slept"),
    "bees": ("hummed", "flew", "danced", "worked"),
    "leaves": ("fell", "danced", "shone", "moved"),
    "flowers": ("bloomed", "shone", "moved", "slept"),
    "stars": ("shone", "danced", "moved", "fell"),
    "clouds": ("moved", "flew", "grew", "played"),
    "children": ("played", "sang", "laughed", "danced"),
    "crickets": ("sang", "hummed", "jumped", "played"),
    "shadows": ("grew", "moved", "danced", "fell"),
    "bells": ("rang", "sang", "shone", "hummed"),
}
SCENERY_WEIGHTS = (4.0, 3.0, 3.0, 3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0)
SCENE_LOOKS = (
    "little",
    "many",
    "last",
    "bright",
    "first",
    "white",
    "wild",
    "small",
    "pretty",
    "other",
)
SCENE_MANNERS = ("again", "together", "around", "softly", "there", "slowly", "outside", "nearby")
SCENERY_NAMES = tuple(SCENERY)
PLACE_LOOKS = ("dark", "old", "wide", "quiet", "deep", "green", "big", "cold", "bright", "far")
PLACE_LOOK_WEIGHTS = (4.0, 4.0, 3.0, 3.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0)

# A place takes its own preposition, hides things in its own spots, and has its own finds.
PLACES = {
    "forest": ("in", ("under a tree", "behind a log", "in the leaves"), ("lamp", "key", "drum", "feather", "basket")),
    "garden": ("in", ("under a bush", "in the grass", "behind a tree"), ("ball", "ring", "hat", "basket", "spoon")),
    "cave": ("in", ("behind a rock", "under a stone", "in the dark"), ("lamp", "map", "coin", "crown", "key")),
    "meadow": ("in", ("in the grass", "under a bush", "behind a rock"), ("kite", "hat", "feather", "flute", "ball")),
    "village": ("in", ("behind a door", "under a cart", "in the snow"), ("coin", "bell", "book", "hat", "clock")),
    "river": ("by", ("in the sand", "under a stone", "in the grass"), ("boat", "ring", "shell", "net", "flute")),
    "lake": ("by", ("in the sand", "behind a log", "under a boat"), ("boat", "net", "lamp", "mirror", "shell")),
    "sea": ("by", ("in the sand", "under a boat", "behind a rock"), ("shell", "map", "crown", "boat", "mirror")),
    "mill": ("by", ("behind a door", "under a cart", "in the leaves"), ("spoon", "book", "clock", "drum", "bell")),
    "hill": ("on", ("in the grass", "behind a rock", "in the snow"), ("kite", "bell", "flute", "drum", "crown")),
    "island": ("on", ("in the sand", "under a tree", "behind a log"), ("map", "coin", "shell", "key", "mirror")),
    "farm": ("on", ("under a cart", "behind a door", "in the leaves"), ("ball", "spoon", "clock", "net", "kite")),
}  # fmt: skip
PLACE_NAMES = tuple(PLACES)
PLACE_WEIGHTS = (5.0, 4.0, 3.0, 4.0, 4.0, 4.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0)
FIND_WEIGHTS = (4.0, 4.0, 3.0, 3.0, 2.0)
SPOT_WEIGHTS = (3.0, 2.0, 1.0)
OBJECTS = tuple(sorted({thing for _, _, things in PLACES.values() for thing in things}))

LOOKS = ("red", "golden", "blue", "silver", "tiny", "shiny", "round", "green", "broken", "magic")
LOOK_WEIGHTS = (5.0, 4.0, 4.0, 3.0, 3.0, 3.0, 2.0, 2.0, 1.0, 2.0)

# The weather, and how it makes one feel.
MOODS_OF = {
    "sunny": ("happy", "calm", "glad", "excited"),
    "rainy": ("sad", "tired", "bored", "unhappy"),
    "windy": ("excited", "worried", "angry", "glad"),
    "snowy": ("cold", "happy", "tired", "calm"),
    "foggy": ("worried", "afraid", "sad", "cold"),
    "stormy": ("afraid", "worried", "angry", "unhappy"),
    "cloudy": ("bored", "calm", "unhappy", "sad"),
}
WEATHER_NAMES = tuple(MOODS_OF)
WEATHER_WEIGHTS = (5.0, 4.0, 4.0, 3.0, 2.0, 2.0, 3.0)
DEGREES = ("very", "so", "quite", "rather", "really", "too")
TIMES = ("morning", "day", "evening", "night", "Sunday", "summer", "winter", "spring")
TIME_WEIGHTS = (4.0, 4.0, 3.0, 2.0, 2.0, 2.0, 2.0, 1.0)

PAST = {
    "run": "ran", "explore": "explored", "sing": "sang", "hide": "hid", "sleep": "slept",
    "swim": "swam", "dance": "danced", "eat": "ate", "read": "read", "cook": "cooked",
    "climb": "climbed", "fly": "flew", "jump": "jumped", "dig": "dug", "paint": "painted",
    "walk": "walked", "knit": "knitted", "fish": "fished",
}  # fmt: skip
SKILLS = ("sing", "swim", "dance", "read", "cook", "climb", "fly", "paint", "knit", "fish")
GOALS = ("walked", "ran", "went", "hurried", "jumped", "danced", "came", "flew")
FAMILY = ("mother", "father", "sister", "brother", "aunt", "uncle", "grandmother", "grandfather")
CALLS = ("Yes", "Oh", "Well", "Look", "Dear", "Sure")
JUDGEMENTS = ("easy", "hard", "fun", "great", "wonderful", "lovely")
EFFORTS = ("worked", "tried", "played", "laughed", "talked")
FOODS = ("bread", "soup", "cake", "cheese", "honey", "berries", "nuts", "tea", "apples", "pie")

# Recipes: a dish, the vessel, the way of cooking, and what may go in.
DISHES = {
    "soup": ("pot", "simmer", ("hot", "warm"), ("onions", "carrots", "beans", "tomatoes", "rice", "leeks")),
    "stew": ("pot", "cook", ("hot", "warm"), ("potatoes", "carrots", "beans", "mushrooms", "onions", "peas")),
    "cake": ("tin", "bake", ("warm", "cold"), ("eggs", "butter", "sugar", "flour", "lemons", "apples")),
    "pie": ("tin", "bake", ("hot", "cold"), ("apples", "butter", "flour", "plums", "mushrooms", "leeks")),
    "salad": ("bowl", "toss", ("cold", "fresh"), ("tomatoes", "beans", "peas", "plums", "cheese", "carrots")),
    "pancakes": ("pan", "fry", ("hot", "warm"), ("eggs", "milk", "flour", "butter", "sugar", "lemons")),
}  # fmt: skip
DISH_NAMES = tuple(DISHES)
DISH_WEIGHTS = (5.0, 3.0, 4.0, 3.0, 2.0, 3.0)

# What is measured how, and what may be done to it.
MEASURE = {
    "rice": "cups of", "flour": "cups of", "sugar": "spoons of", "butter": "spoons of",
    "milk": "cups of", "cheese": "slices of", "beans": "cups of", "peas": "cups of",
}  # fmt: skip
TREATMENTS = {
    "onions": ("peel", "chop"), "carrots": ("peel", "slice"), "potatoes": ("peel", "boil"),
    "beans": ("rinse", "boil"), "peas": ("rinse", "boil"), "tomatoes": ("wash", "chop"),
    "rice": ("rinse", "boil"), "leeks": ("wash", "slice"), "mushrooms": ("wash", "slice"),
    "eggs": ("beat", "crack"), "butter": ("melt", "cut"), "sugar": ("weigh", "sift"),
    "flour": ("weigh", "sift"), "lemons": ("squeeze", "slice"), "apples": ("peel", "slice"),
    "plums": ("wash", "cut"), "cheese": ("grate", "cut"), "milk": ("warm", "pour"),
}  # fmt: skip
COUNTS = ("two", "three", "four", "five", "six")
STATES = ("ripe", "fresh", "big", "small", "red", "sweet", "good", "old")
CARES = ("finely", "gently", "slowly", "quickly", "well", "carefully")
COUNT_WEIGHTS = (5.0, 4.0, 3.0, 1.0, 1.0)
MINUTES = ("five", "ten", "fifteen", "twenty", "thirty")
SPICES = ("salt", "pepper", "parsley", "mint", "ginger", "cinnamon")

# Toy code: a function name tells its operator and the name of its result.
FUNCTIONS = {
    "add": ("+", "total"), "join": ("+", "result"), "plus": ("+", "value"),
    "subtract": ("-", "rest"), "minus": ("-", "value"), "reduce": ("-", "result"),
    "multiply": ("*", "product"), "scale": ("*", "value"), "area": ("*", "size"),
    "divide": ("/", "quotient"), "share": ("/", "part"), "ratio": ("/", "value"),
}  # fmt: skip
FUNCTION_NAMES = tuple(FUNCTIONS)
PARAMETERS = (("a", "b"), ("x", "y"), ("n", "m"), ("left", "right"), ("first", "second"))
PARAMETER_WEIGHTS = (5.0, 4.0, 2.0, 1.0, 1.0)
DIGITS = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
