"""What the draft is trained on: requests of the kinds a small chat model is asked for.

The bench's own prompts can not be drawn: at temperature 0 the draft would have learnt the answers.
"""

from __future__ import annotations

import random

CHARACTERS = (
    "a gardener", "a fisherman", "a baker", "a squirrel", "twin sisters", "a cat", "an old teacher",
    "a postman", "a young fox", "a lighthouse keeper", "a robot", "two brothers", "a shy dragon",
    "a painter", "a train driver", "a grandmother", "a lost dog", "a clockmaker", "a farmer",
    "a sailor", "a nurse", "an owl", "a king without a crown", "a girl who cannot whistle",
)  # fmt: skip
PLACES = (
    "in the kitchen", "in a lighthouse", "under a bridge", "in the snow", "in a library",
    "in an old house", "in a meadow", "on a small island", "at the market", "in a school",
    "by the sea", "in a forest", "on a train", "in a tower", "in the desert", "at night",
)  # fmt: skip
THINGS = (
    "a broken clock", "a silver coin", "a small promise", "a brave choice", "a secret door",
    "a rainy day", "a birthday cake", "a red umbrella", "an old map", "a blue bicycle", "a letter",
    "a music box", "a paper boat", "a missing button", "a warm coat", "a strange noise",
    "a new friend", "a jar of honey", "a long journey", "a lost glove", "a wooden horse",
    "a hungry bear", "a torn kite", "a big storm", "a bowl of soup", "a magic pencil",
    "an empty nest",
)  # fmt: skip
SUBJECTS = (
    "the moon", "gravity", "rain", "volcanoes", "photosynthesis", "magnets", "light", "sound",
    "computers", "maps", "bees", "averages", "fractions", "probability", "the ocean", "earthquakes",
    "electricity", "the heart", "vaccines", "money", "rivers", "dinosaurs", "recycling", "sleep",
    "the internet", "batteries", "plants", "the seasons", "glaciers", "bridges", "rainbows",
    "bread", "aeroplanes", "stars", "languages", "history", "friendship", "salt", "wind",
    "microscopes",
)  # fmt: skip
TASKS = (
    "returns the median of a list", "reverses a string", "counts the vowels in a text",
    "returns the largest of three numbers", "removes duplicates from a list",
    "computes the factorial of n", "merges two sorted lists", "reads a file and counts its lines",
    "converts Celsius to Fahrenheit", "finds the longest word in a sentence",
    "sums the even numbers of a list", "checks whether a word is a palindrome",
    "returns the n-th Fibonacci number", "sorts a list of pairs by the second entry",
    "counts how often each word occurs", "flattens a nested list",
    "finds the common elements of two lists", "counts the words of a text",
    "computes the greatest common divisor of two numbers", "checks whether a year is a leap year",
    "returns the second largest number of a list", "turns a sentence into title case",
    "computes the area of a triangle", "removes all spaces from a string",
    "rotates a list by k places", "checks whether two words are anagrams",
    "converts a number to binary", "sums the digits of a number",
    "finds the missing number in a list", "transposes a matrix", "multiplies two matrices",
    "computes the mean and the variance of a list", "draws a random password",
    "prints the multiplication table", "searches a sorted list by halving it",
    "sorts a list with bubble sort", "sorts a list with quicksort",
    "simulates the roll of two dice", "replaces every vowel with a star",
    "splits a list into chunks of equal size", "computes compound interest",
    "validates an email address", "writes a dictionary to a file as JSON",
    "reads a CSV file and sums a column", "groups words by their first letter",
    "computes the distance between two points", "returns all divisors of a number",
    "checks whether brackets are balanced", "implements a stack", "implements a queue",
    "finds the first letter that does not repeat", "zips two lists into a dictionary",
    "removes the negative numbers from a list", "counts down from ten", "guesses a number",
    "computes the power of a number", "encodes a text with the Caesar cipher",
    "converts seconds to hours and minutes", "finds the shortest string in a list",
    "checks whether a list is sorted", "computes the dot product of two vectors",
    "prints a triangle of stars", "capitalises the first letter of each word",
    "computes a running total", "picks a random element of a list",
    "computes the sum of the squares from 1 to n", "deletes every third element of a list",
    "computes the age from a birthday",
)  # fmt: skip
QUESTIONS = (
    "leaves change colour in autumn", "ice floats on water", "cats purr", "we have leap years",
    "bread rises", "the sea is salty", "birds migrate", "onions make us cry",
    "metal feels colder than wood", "we dream", "the moon changes its shape", "soap removes grease",
    "planes can fly", "some people are left-handed", "honey does not spoil", "we yawn",
    "thunder follows lightning", "tea cools down", "roads have speed limits", "prices rise",
    "countries have flags", "deserts are cold at night", "trees have rings", "grass is green",
    "snow is white", "we get hungry", "stars twinkle", "iron rusts", "balloons float",
    "spiders build webs", "we have two eyes", "milk turns sour", "the days are longer in summer",
    "bridges have gaps", "people tell stories", "dogs wag their tails", "ships float",
    "we need friends", "water boils", "paper burns", "we forget things", "the earth turns",
    "prices differ between shops", "fish live in water", "glass is transparent", "bees make honey",
    "mountains are cold at the top",
)  # fmt: skip
MACHINES = (
    "a bicycle", "a microwave oven", "a compass", "a camera", "a thermometer", "a washing machine",
    "a telescope", "a lift", "a clock", "a radio", "a solar panel", "a vaccine", "an engine",
    "a search engine", "a bank", "a library", "a power station", "a parachute", "a lock",
    "a pencil", "a toaster", "a submarine", "a traffic light", "a windmill", "a printer",
    "a microscope", "a lighthouse", "a hot-air balloon", "a sewing machine", "a telephone",
    "a piano", "a dishwasher", "a helicopter", "a barometer", "a smoke detector", "a touch screen",
    "a water pump", "a rocket", "a loudspeaker",
)  # fmt: skip
LANGUAGES = ("Python", "JavaScript", "Java", "C", "Ruby", "Go")
PEOPLE = ("a friend", "my manager", "a neighbour", "my teacher", "a customer", "my landlord")

TEMPLATES = {
    "story": (
        "Write a very short story for young children about {who} {where} and {what}. "
        "Use simple words.",
        "Write a short story with simple sentences. It is about {who} {where}, and it has {what} "
        "in it.",
        "Tell a short bedtime story about {who} and {what}.",
        "Tell me a story about {what}.",
        "Tell me a short story about {who} and {rival}.",
        "Write a story that begins with {what} and ends {where}.",
        "Write a poem about {subject}.",
        "Write a dialogue between {who} and {rival} about {what}.",
        "Describe a day in the life of {who}.",
    ),
    "explanation": (
        "Explain {subject} to a ten year old.",
        "What is {subject}? Answer in a few sentences.",
        "Give me five facts about {subject}.",
        "Make a short list of tips about {subject}.",
        "Why is it that {question}?",
        "Explain why {question}.",
        "How does {machine} work?",
        "Explain how {machine} works.",
        "What is the difference between {subject} and {other}?",
        "Tell me about the history of {machine}.",
        "Who needs {machine}, and what for?",
        "I have an exam about {subject}. What should I know?",
    ),
    "code": (
        "Write a Python function that {task}.",
        "Write a Python function that {task}, and show how to call it.",
        "Write a function in {language} that {task}.",
        "Write a Python class for {machine} with two methods.",
        "How do I write a program that {task}?",
        "Write a test for a Python function that {task}.",
    ),
    "e-mail": (
        "Write an email to {person} about {what}.",
        "Write a polite email to {person} about {subject}.",
        "Write a short letter to {person} in which you apologise for {what}.",
        "Write a note that invites {person} to a talk about {subject}.",
        "Write an answer to {person} who has lost {what}.",
    ),
}
KINDS = tuple(TEMPLATES)


def request(rng: random.Random, kind: str) -> str:
    """One request of a kind, drawn with `rng`."""
    who, rival = rng.sample(CHARACTERS, 2)
    subject, other = rng.sample(SUBJECTS, 2)
    return rng.choice(TEMPLATES[kind]).format(
        who=who, rival=rival, where=rng.choice(PLACES), what=rng.choice(THINGS), subject=subject,
        other=other, task=rng.choice(TASKS), person=rng.choice(PEOPLE),
        question=rng.choice(QUESTIONS), machine=rng.choice(MACHINES),
        language=rng.choice(LANGUAGES),
    )  # fmt: skip
