# Copyright 2025 Individual Contributor: the verl-cxr authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Reads one sentence: which findings it speaks of, present, absent or uncertain, and where.

One pass from left to right with a small state, so the time is linear in the words. The rules, each with an example:

scope       a cue holds for the list after it: "no A, B or C"; a verb, a contrast or a new clause ends it
after       a cue behind its finding holds for the list before it: "A and B are not seen", "A cannot be excluded"
modifiers   belong to the finding after them ("mild A"), else to the one before ("the A is mild")
place       "A and B in the left lung", "left lung A", "the left lung is clear", "clear lungs"
evidence    "A may reflect B": A suggests B, B is uncertain
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_cxr.facts.terms import Kind, Term, Terms

__all__ = ["Mention", "read_sentence"]

ABSENT, PRESENT, UNCERTAIN = "definitely absent", "definitely present", "uncertain"

_Side = tuple[str, int, int]  # left, right or both; first and last word
_SIDES = {None: ("",), "left": ("left",), "right": ("right",), "both": ("left", "right")}
_MOST = 16  # findings or places that one list can link; no real sentence has more, and it keeps hostile ones linear

_DESCRIPTIONS = frozenset({Kind.MODIFIER, Kind.DEGREE})
_HEADS = _DESCRIPTIONS | {Kind.OBSERVATION, Kind.COMPOUND, Kind.STATE, Kind.AFFIRMING}
_FINDINGS = _HEADS | {Kind.SIDE, Kind.ANATOMY}
_AFTER_PLACE = frozenset({Kind.OBSERVATION, Kind.COMPOUND, Kind.ANATOMY})
_LIST_ENDS = frozenset({Kind.VERB, Kind.THERE, Kind.BUT, Kind.CLOSE, Kind.ABSENT, Kind.SUGGESTS, Kind.MEANS})


class Mention:
    """An entity in the making; its sentence may change it until it ends.

    Attributes:
        status: present, absent or uncertain; None for an anatomical part.
        part: the name without its side, for an anatomical part.
        start, end: first and last word, counted in the text.
        modifies: the mention that it describes, whose status it shares.
        relations: all others, as (type, mention).
    """

    __slots__ = ("end", "modifies", "name", "part", "relations", "start", "status")

    def __init__(self, name: str, status: str | None, start: int, end: int, part: str = "") -> None:
        self.name = name
        self.part = part
        self.status = status
        self.start = start
        self.end = end
        self.modifies: Mention | None = None
        self.relations: list[tuple[str, Mention]] = []


def read_sentence(words: Sequence[str], offset: int, terms: Terms) -> list[Mention]:
    """The mentions of a sentence.

    Args:
        words: lower-case words and punctuation marks of one sentence.
        offset: the position of its first word in the text.
        terms: the word list.
    """
    found = terms.find(words)
    return _Reader(terms, offset).read(found) if found else []


class _Reader:
    """The state of one sentence.

    A clause is a stretch with a subject of its own; a run is a list of findings that may share a cue behind them.
    """

    def __init__(self, terms: Terms, offset: int) -> None:
        self.terms = terms
        self.offset = offset
        self.out: list[Mention] = []
        # what a cue said about the findings to come
        self.scope = PRESENT
        self.scope_used = False
        self.evidence: Mention | None = None  # what suggests them
        self.candidate: Mention | None = None  # the latest present finding: evidence, if a cue says so
        self.explained: Mention | None = None  # the latest evidence
        # words that wait for what they belong to
        self.side: _Side | None = None
        self.modifiers: list[Mention] = []
        self.elided: list[tuple[list[Mention], _Side | None]] = []  # "small left" of "small left and large right A"
        self.states: list[Mention] = []
        self.nouns: list[Mention] = []  # findings without a place
        # the clause so far
        self.sites: list[Mention] = []
        self.sites_used = False  # some finding is there
        self.placed: list[Mention] = []  # the findings that the latest anatomy took
        self.run: list[Mention] = []
        self.last: Mention | None = None
        self.noun: Mention | None = None
        self.verb = False
        self.subject = False  # `sites` is what the verb speaks of
        # the words around
        self.listed = False  # an "and", "or" or list comma came just before
        self.place = False  # a preposition came just before
        self.part_of = False  # ... and an anatomical part before it
        self.previous: Kind | None = None
        self.next: Kind | None = None
        self.then: Kind | None = None  # after the next

    def read(self, found: Sequence[tuple[Term, int, int]]) -> list[Mention]:
        joins = _joining_commas(found)
        kinds: list[Kind | None] = [term.kind for term, _, _ in found] + [None, None]
        for i, (term, start, end) in enumerate(found):
            self.next, self.then = kinds[i + 1], kinds[i + 2]
            if i in joins:
                self.join(term, start, end)
            else:
                _ACTIONS[term.kind](self, term, start + self.offset, end + self.offset)
            self.previous = term.kind
        self.end_clause()
        return self.out

    # findings

    def observation(self, term: Term, start: int, end: int) -> None:
        shares = [*self.elided, (self.modifiers, self.side)]
        self.elided = []
        for modifiers, side in shares:
            self.modifiers, self.side = modifiers, side
            self.one_observation(term, start, end)

    def one_observation(self, term: Term, start: int, end: int) -> None:
        mention = self.add(term.name, self.scope, start, end)
        for state in self.states:
            state.modifies = mention
        self.states = []
        self.take_modifiers(mention)
        if term.anatomy:
            _locate([mention], self.add_sites(term.anatomy, start, end))
        elif self.at_sites():
            _locate([mention], self.sites)
            self.sites_used = True
        elif self.side is None:
            self.nouns.append(mention)
        if self.side:
            _locate([mention], self.add_sites(("",), start, end))
        self.noun = mention
        if mention.status == PRESENT:
            self.candidate = mention
        self.observed(mention)

    def at_sites(self) -> bool:
        """Whether a noun is seen where the clause is ("left lung opacity", "the left lung shows opacity")."""
        if self.side and self.previous is not Kind.ANATOMY:  # "the heart is large, left effusion"
            return False
        return bool(self.sites) and (self.subject or not self.sites_used)

    def state(self, term: Term, start: int, end: int) -> None:
        if term.kind is Kind.AFFIRMING and self.scope != PRESENT and self.previous is not Kind.ABSENT:
            self.scope = PRESENT
        mention = self.add(term.name, self.scope, start, end)
        self.take_modifiers(mention)
        if self.subject and not self.listed:
            _locate([mention], self.sites)
            self.sites_used = True
        else:
            self.states.append(mention)
        self.observed(mention)

    def observed(self, mention: Mention) -> None:
        if self.evidence:
            self.evidence.relations.append(("suggestive_of", mention))
        self.run.append(mention)
        self.last = mention
        self.scope_used = True
        self.listed = self.place = self.part_of = False

    def modifier(self, term: Term, start: int, end: int) -> None:
        self.modifiers.append(Mention(term.name, self.scope, start, end))

    # places

    def anatomy(self, term: Term, start: int, end: int) -> None:
        if self.part_of and self.sites and self.is_part(self.sites[-1], term):
            self.narrow(term)
        else:
            self.new_sites(term, start, end)
        self.listed = self.place = self.part_of = False

    def new_sites(self, term: Term, start: int, end: int) -> None:
        sites = self.add_sites(term.anatomy, start, end, term.side)
        chained = self.previous is Kind.ANATOMY  # "hilar lymph nodes"
        placed: list[Mention] = []
        if self.next in _AFTER_PLACE:  # "left lung opacity": the place of what follows
            if not (chained or self.listed):
                self.place_nouns()
                self.sites = []
        elif self.states:
            placed, self.states = self.states, []
        elif self.place:
            placed, self.nouns = self.nouns or self.run[-1:], []
        elif self.listed and self.placed and not self.starts_clause():
            placed = self.placed
        if not self.sites_used and (chained or not placed):  # "heart and lungs are normal"
            sites = (self.sites + sites)[-_MOST:]
        _locate(placed, sites)
        self.sites, self.sites_used, self.placed = sites, bool(placed), placed[-_MOST:]
        self.subject = False

    def starts_clause(self) -> bool:
        """Whether a place is the subject of a clause of its own: "A in the lung and the heart is large"."""
        if self.next is Kind.VERB:
            return self.verb or self.then is Kind.STATE or self.then is Kind.AFFIRMING
        return self.next in _HEADS

    def is_part(self, site: Mention, term: Term) -> bool:
        wholes = self.terms.wholes.get(site.part)
        return site.name == site.part and wholes is not None and not wholes.isdisjoint(term.anatomy)

    def narrow(self, term: Term) -> None:
        """ "base of the right lung": the lung only says which base."""
        name = self.side[0] if self.side else term.side
        self.side = None
        for site in [site for site in self.sites if self.is_part(site, term)]:
            first, *others = (f"{side} {site.part}".strip() for side in _SIDES[name])
            site.name = first
            for other in others:
                twin = self.add(other, None, site.start, site.end, site.part)
                self.sites.append(twin)
                _locate(self.placed, [twin])

    def set_side(self, term: Term, start: int, end: int) -> None:
        if self.side and self.side[0] != term.name:
            self.side = ("both", self.side[1], end)
        else:
            self.side = (term.name, start, end)

    def add_sites(self, parts: Sequence[str], start: int, end: int, side: str | None = None) -> list[Mention]:
        """New mentions of the parts, on the side that waits; a part ``""`` is the side alone."""
        if self.side and self.terms.unsided.isdisjoint(parts):
            side, at, until = self.side
            start, end = (min(start, at), max(end, until)) if parts[0] else (at, until)
            self.side = None
        return [self.add(f"{which} {part}".strip(), None, start, end, part) for part in parts for which in _SIDES[side]]

    def preposition(self, term: Term, start: int, end: int) -> None:
        self.part_of = self.previous is Kind.ANATOMY
        self.place = True

    # cues

    def absent(self, term: Term, start: int, end: int) -> None:
        self.settle()
        if self.sites_used:
            self.sites = []
        self.open_scope(ABSENT)

    def uncertain(self, term: Term, start: int, end: int) -> None:
        if self.scope == ABSENT and not self.scope_used:  # "no evaluation for"
            return
        self.open_scope(UNCERTAIN)

    def versus(self, term: Term, start: int, end: int) -> None:
        if self.scope == ABSENT:
            self.join(term, start, end)
            return
        if self.last and self.last.status == PRESENT:
            self.last.status = UNCERTAIN
        evidence = self.evidence
        self.open_scope(UNCERTAIN)
        self.evidence = evidence

    def suggests(self, term: Term, start: int, end: int) -> None:
        if self.scope == ABSENT:  # "no finding to suggest A": A is absent too
            return
        lists = self.previous is Kind.AND and start == end  # "opacity and likely effusion"
        evidence = None if lists else self.candidate
        self.open_scope(UNCERTAIN if term.kind is Kind.SUGGESTS else PRESENT)
        self.evidence = self.explained = evidence

    def open_scope(self, status: str) -> None:
        self.scope, self.scope_used, self.evidence = status, False, None
        self.run = []

    def after(self, term: Term, start: int, end: int) -> None:
        status = ABSENT if term.kind is Kind.ABSENT_AFTER else UNCERTAIN
        targets = self.run
        if not targets:
            if self.last is None or self.next in _FINDINGS:
                self.open_scope(status)
                return
            targets = [self.last]
        for mention in targets:
            if mention.status != ABSENT:
                mention.status = status
            if mention is self.candidate:
                self.candidate = None
            # "A may reflect B, but C is not excluded": A suggests C too
            if self.explained and self.explained is not mention and status == UNCERTAIN:
                self.explained.relations.append(("suggestive_of", mention))
        self.run = []
        self.scope = PRESENT

    # the shape of the sentence

    def join(self, term: Term, start: int, end: int) -> None:
        if self.modifiers and self.side and not (self.place or self.verb) and self.next in _DESCRIPTIONS:
            self.elided.append((self.modifiers, self.side))
            self.modifiers, self.side = [], None
        if self.states and self.sites and not self.sites_used:
            self.settle_states()
        if self.verb:
            self.settle_modifiers()
        if self.side and (self.place or self.side[0] == "both"):
            self.settle_side()
        if term.kind is Kind.AND and self.next is Kind.DEGREE and self.scope == ABSENT:
            self.close_scope()  # "no A and small B"
        self.listed = True

    def comma(self, term: Term, start: int, end: int) -> None:
        self.settle_side()
        self.settle_states()
        if self.next not in _HEADS and self.next is not Kind.VERB:
            self.settle_modifiers()
        self.place_nouns()
        if self.scope == UNCERTAIN or self.next not in (Kind.OBSERVATION, Kind.COMPOUND, Kind.MODIFIER):
            self.close_scope()
        self.run, self.nouns, self.placed = [], [], []
        self.verb = self.subject = False

    def is_verb(self, term: Term, start: int, end: int) -> None:
        self.close_scope()
        self.verb = True
        self.subject = bool(self.sites) and (self.listed or not self.sites_used)
        self.listed = False

    def there(self, term: Term, start: int, end: int) -> None:
        sites = [] if self.sites_used or self.nouns else self.sites
        self.end_clause()
        self.close_scope()
        self.sites, self.subject, self.verb = sites, bool(sites), True

    def close(self, term: Term, start: int, end: int) -> None:
        self.settle()
        self.close_scope()
        if self.sites_used:
            self.sites = []
        self.run = []
        self.subject = self.listed = False

    def but(self, term: Term, start: int, end: int) -> None:
        self.end_clause()
        self.scope, self.evidence = PRESENT, None

    def ignore(self, term: Term, start: int, end: int) -> None:
        """A phrase that is known so that its words are not read one by one."""

    def close_scope(self) -> None:
        if self.scope_used:
            self.scope, self.scope_used, self.evidence = PRESENT, False, None

    def end_clause(self) -> None:
        self.settle()
        self.run, self.nouns, self.sites, self.placed, self.elided = [], [], [], [], []
        self.last = self.noun = None
        self.sites_used = self.verb = self.subject = self.listed = self.place = self.part_of = False

    # giving the words that wait what they belong to

    def settle(self) -> None:
        self.settle_side()
        self.settle_states()
        self.settle_modifiers()
        self.place_nouns()

    def settle_side(self) -> None:
        if self.side and self.last:
            _locate(self.nouns or [self.last], self.add_sites(("",), 0, 0))
            self.nouns = []
        self.side = None

    def settle_states(self) -> None:
        for state in self.states:
            if self.sites and (self.subject or not self.sites_used or self.noun is None):
                _locate([state], self.sites)
            else:
                state.modifies = self.noun
        self.sites_used = self.sites_used or bool(self.states and self.sites)
        self.states = []

    def settle_modifiers(self) -> None:
        elsewhere = self.sites and not self.sites_used and not self.run  # "cardiomegaly, stable mediastinum"
        if self.last and not elsewhere:
            self.take_modifiers(self.last)
        elif self.sites:  # "the heart is stable"
            _locate(self.modifiers, self.sites)
            self.out += self.modifiers
            self.sites_used = self.sites_used or bool(self.modifiers)
        self.modifiers = []

    def take_modifiers(self, mention: Mention) -> None:
        for modifier in self.modifiers:
            modifier.modifies = mention
        self.out += self.modifiers
        self.modifiers = []

    def place_nouns(self) -> None:
        if self.nouns and self.sites and not self.sites_used:
            _locate(self.nouns, self.sites)
            self.sites_used = True
            self.nouns = []

    def add(self, name: str, status: str | None, start: int, end: int, part: str = "") -> Mention:
        mention = Mention(name, status, start, end, part)
        self.out.append(mention)
        return mention


def _locate(findings: Sequence[Mention], sites: Sequence[Mention]) -> None:
    for finding in findings[-_MOST:]:
        finding.relations += [("located_at", site) for site in sites]


def _joining_commas(found: Sequence[tuple[Term, int, int]]) -> frozenset[int]:
    """Which commas are part of a list: an "and" or "or" follows before the list can end."""
    joining, positions = False, []
    for i in range(len(found) - 1, -1, -1):
        kind = found[i][0].kind
        if kind is Kind.AND or kind is Kind.OR:
            joining = True
        elif kind in _LIST_ENDS:
            joining = False
        elif joining and kind is Kind.COMMA:
            positions.append(i)
    return frozenset(positions)


_ACTIONS: dict[Kind, Callable[[_Reader, Term, int, int], None]] = {
    Kind.OBSERVATION: _Reader.observation,
    Kind.COMPOUND: _Reader.observation,
    Kind.STATE: _Reader.state,
    Kind.AFFIRMING: _Reader.state,
    Kind.MODIFIER: _Reader.modifier,
    Kind.DEGREE: _Reader.modifier,
    Kind.ANATOMY: _Reader.anatomy,
    Kind.SIDE: _Reader.set_side,
    Kind.PLACE: _Reader.preposition,
    Kind.ABSENT: _Reader.absent,
    Kind.UNCERTAIN: _Reader.uncertain,
    Kind.VERSUS: _Reader.versus,
    Kind.SUGGESTS: _Reader.suggests,
    Kind.MEANS: _Reader.suggests,
    Kind.ABSENT_AFTER: _Reader.after,
    Kind.UNCERTAIN_AFTER: _Reader.after,
    Kind.AND: _Reader.join,
    Kind.OR: _Reader.join,
    Kind.COMMA: _Reader.comma,
    Kind.VERB: _Reader.is_verb,
    Kind.THERE: _Reader.there,
    Kind.CLOSE: _Reader.close,
    Kind.BUT: _Reader.but,
    Kind.IGNORE: _Reader.ignore,
}
