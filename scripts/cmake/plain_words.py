"""Rules of plain words, each in this one place: for pages, for texts that users read, and for comments of headers.

A sentence has at most 30 words, and 15 on average. It begins with its subject. Phrases that readers stumbled over do
not come back.
"""
import re

MAX_WORDS, MAX_MEAN_WORDS = 30, 15
BEGINNING = re.compile(r'(?:What|Where|Whose|Of|With who[m]?)\b', re.IGNORECASE)
BANNED = ('is believed of', 'as long as it may', 'but for ', 'all the same', 'in the training that it is for',
          'whoever', 'whatever it', 'off by')


def num_words(text):
    return sum(bool(re.search(r'\w', word)) for word in text.split())


def split_sentences(text):
    for one in re.split(r'(?<=[.!?])["”)]?\s+(?=["“(`]*[A-Z0-9`])', text):
        if num_words(one) > 0:
            yield one.strip()


def banned_in(text):
    return [words.strip() for words in BANNED if words in text.lower() + ' ']
