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

from collections.abc import Callable, Iterable, Sequence

from verl_cxr.facts.terms import Kind, Term, Terms

__all__ = ["Mention", "read_sentence"]

ABSENT, PRESENT, UNCERTAIN = "definitely absent", "definitely present", "uncertain"
_SIDES = {None: ("",), "left": ("left",), "right": ("right",), "both": ("left", "right")}


class Mention:
    """An entity in the making. `status` is None for an anatomical part; `relations` point at other mentions."""

    __slots__ = ("end", "modifies", "name", "relations", "start", "status")

    def __init__(self, name: str, status: str | None, start: int, end: int) -> None:
        self.name = name
        self.status = status
        self.start = start
        self.end = end
        self.modifies: Mention | None = None
        self.relations: list[tuple[str, Mention]] = []


def read_sentence(words: Sequence[str], offset: int, terms: Terms) -> list[Mention]:
    """The mentions of a sentence in reading order.

    Args:
        words: lower-case words and punctuation marks of one sentence.
        offset: the position of its first word in the text.
        terms: the word list.
    """
    found = terms.find(words)
    if not found:
        return []
    return _Reader(terms, offset).read(found)


_FINDINGS = frozenset({Kind.OBSERVATION, Kind.COMPOUND, Kind.STATE, Kind.AFFIRMING, Kind.MODIFIER, Kind.DEGREE, Kind.SIDE, Kind.ANATOMY})
_HEADS = frozenset({Kind.OBSERVATION, Kind.COMPOUND, Kind.STATE, Kind.AFFIRMING, Kind.MODIFIER, Kind.DEGREE, Kind.VERB})
_LIST_ENDS = frozenset({Kind.VERB, Kind.THERE, Kind.BUT, Kind.CLOSE, Kind.ABSENT, Kind.SUGGESTS, Kind.MEANS})


class _Reader:
    """The state of one sentence. "Clause" is a stretch with its own subject, "run" a list of findings that share a cue."""

    def __init__(self, terms: Terms, offset: int) -> None:
        self.terms = terms
        self.offset = offset
        self.out: list[Mention] = []
        # what a cue said about the findings to come
        self.scope = PRESENT
        self.scope_used = False
        self.evidence: Mention | None = None  # what the findings to come would explain
        self.candidate: Mention | None = None  # the latest present finding: evidence, if a cue says so
        self.explained: Mention | None = None  # the latest evidence
        # words that wait for what they belong to
        self.side: tuple[str, int, int] | None = None
        self.modifiers: list[Mention] = []
        self.states: list[Mention] = []
        self.nouns: list[Mention] = []  # findings without a place
        # the clause so far
        self.sites: list[Mention] = []
        self.site_parts: tuple[str, ...] = ()
        self.sites_used = False  # some finding has been put there
        self.placed: list[Mention] = []  # the findings that a preposition has put at `sites`
        self.run: list[Mention] = []
        self.last: Mention | None = None
        self.noun: Mention | None = None
        self.verb = False
        self.subject = False  # `sites` is what the verb speaks of
        self.listed = False  # an "and", "or" or list comma came just before
        self.place = False  # a preposition came just before
        self.part_of = False  # ... and before it an anatomical part
        self.previous: Kind | None = None
        self.next: Kind | None = None

    def read(self, found: Sequence[tuple[Term, int, int]]) -> list[Mention]:
        joins = _joining_commas(found)
        last = len(found) - 1
        for i, (term, start, end) in enumerate(found):
            self.next = found[i + 1][0].kind if i < last else None
            if term.kind is Kind.COMMA and i in joins:
                self.join(term, start, end)
            else:
                _ACTIONS[term.kind](self, term, start + self.offset, end + self.offset)
            self.previous = term.kind
        self.end_clause()
        return self.out

    # findings

    def observation(self, term: Term, start: int, end: int) -> None:
        mention = self.add(term.name, self.scope, start, end)
        for state in self.states:
            state.modifies = mention
        self.states.clear()
        self.take_modifiers(mention)
        if term.anatomy:
            _locate([mention], self.add_sites(term.anatomy, start, end))
        elif self.side:
            if self.previous is Kind.ANATOMY:
                _locate([mention], self.sites)
                self.sites_used = True
            _locate([mention], self.add_sites(("",), start, end))
        elif self.sites and (self.subject or not self.sites_used):
            _locate([mention], self.sites)
            self.sites_used = True
        else:
            self.nouns.append(mention)
        self.noun = mention
        if mention.status == PRESENT:
            self.candidate = mention
        self.observed(mention)

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
        if self.part_of and self.sites and self.is_whole(term):
            self.narrow(term)
        else:
            self.new_sites(term, start, end)
        self.listed = self.place = self.part_of = False

    def new_sites(self, term: Term, start: int, end: int) -> None:
        sites = self.add_sites(term.anatomy, start, end, term.side)
        if self.next is Kind.OBSERVATION or self.next is Kind.COMPOUND:  # "left lung opacity": the place of what follows
            if self.listed and not self.sites_used:
                sites = self.sites + sites
            else:
                self.place_nouns()
            placed = []
        elif self.states:
            placed, self.states = self.states, []
        elif self.place:
            placed, self.nouns = self.nouns or self.run[-1:], []
        elif self.listed and self.placed and (self.next not in _HEADS or (self.next is Kind.VERB and not self.verb)):
            placed = self.placed
        else:
            placed = []
            if self.sites and not self.sites_used:
                sites = self.sites + sites
        _locate(placed, sites)
        self.sites, self.site_parts, self.sites_used, self.placed = sites, term.anatomy, bool(placed), placed
        self.subject = False

    def is_whole(self, term: Term) -> bool:
        wholes = self.terms.wholes
        return all(not wholes.get(part, frozenset()).isdisjoint(term.anatomy) for part in self.site_parts)

    def narrow(self, term: Term) -> None:
        """ "base of the right lung": the lung only says which base."""
        name = self.side[0] if self.side else term.side
        self.side = None
        if name is None:
            return
        for site, part in list(zip(self.sites, self.site_parts, strict=False)):
            first, *others = (f"{side} {part}" for side in _SIDES[name])
            site.name = first
            for other in others:
                twin = self.add(other, None, site.start, site.end)
                self.sites.append(twin)
                _locate(self.placed, [twin])

    def set_side(self, term: Term, start: int, end: int) -> None:
        if self.side and self.side[0] != term.name:
            self.side = ("both", self.side[1], end)
        else:
            self.side = (term.name, start, end)

    def add_sites(self, parts: Sequence[str], start: int, end: int, side: str | None = None) -> list[Mention]:
        if self.side and self.terms.midline.isdisjoint(parts):
            side, at, until = self.side
            start, end = (min(start, at), max(end, until)) if parts[0] else (at, until)
            self.side = None
        names = [f"{which} {part}".strip() if which and not part.startswith(which) else part or which for part in parts for which in _SIDES[side]]
        return [self.add(name, None, start, end) for name in names]

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
        if self.scope == ABSENT and not self.scope_used:
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
        listed = self.previous is Kind.AND and start == end  # "opacity and likely effusion"
        evidence = None if listed else self.candidate
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
            if self.explained and status == UNCERTAIN:  # "A may reflect B, but C is not excluded": A suggests C too
                self.explained.relations.append(("suggestive_of", mention))
        self.run = []
        self.scope = PRESENT

    # the shape of the sentence

    def join(self, term: Term, start: int, end: int) -> None:
        if self.states and self.sites and not self.sites_used:
            self.settle_states()
        if self.verb:
            self.settle_modifiers()
        if self.side and (self.place or self.side[0] == "both"):
            self.settle_side()
        if term.kind is Kind.AND and self.next is Kind.DEGREE and self.scope == ABSENT:
            self.close_scope()
        self.listed = True

    def comma(self, term: Term, start: int, end: int) -> None:
        self.settle_side()
        self.settle_states()
        if self.next not in _HEADS:
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
        sites, parts = ([], ()) if self.sites_used or self.nouns else (self.sites, self.site_parts)
        self.end_clause()
        self.close_scope()
        self.sites, self.site_parts, self.subject, self.verb = sites, parts, bool(sites), True

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
        """A phrase that is here so that its words are not read one by one."""

    def close_scope(self) -> None:
        if self.scope_used:
            self.scope, self.scope_used, self.evidence = PRESENT, False, None

    def end_clause(self) -> None:
        self.settle()
        self.run, self.nouns, self.sites, self.placed, self.site_parts = [], [], [], [], ()
        self.last = self.noun = None
        self.sites_used = self.verb = self.subject = self.listed = self.place = self.part_of = False

    # giving the words that wait what they belong to

    def settle(self) -> None:
        self.settle_side()
        self.settle_states()
        self.settle_modifiers()
        self.place_nouns()

    def place_nouns(self) -> None:
        if self.nouns and self.sites and not self.sites_used:
            _locate(self.nouns, self.sites)
            self.sites_used = True
            self.nouns = []

    def settle_side(self) -> None:
        if self.side and self.last:
            _locate(self.nouns or [self.last], self.add_sites(("",), 0, 0))
            self.nouns = []
        self.side = None

    def settle_states(self) -> None:
        for state in self.states:
            if self.sites and (self.subject or not self.sites_used or self.noun is None):
                _locate([state], self.sites)
            elif self.noun:
                state.modifies = self.noun
        if self.states and self.sites:
            self.sites_used = True
        self.states = []

    def settle_modifiers(self) -> None:
        if self.last:
            self.take_modifiers(self.last)
        elif self.sites:
            _locate(self.modifiers, self.sites)
            self.out += self.modifiers
            self.sites_used = self.sites_used or bool(self.modifiers)
        self.modifiers = []

    def take_modifiers(self, mention: Mention) -> None:
        for modifier in self.modifiers:
            modifier.modifies = mention
        self.out += self.modifiers
        self.modifiers = []

    def add(self, name: str, status: str | None, start: int, end: int) -> Mention:
        mention = Mention(name, status, start, end)
        self.out.append(mention)
        return mention


def _locate(findings: Iterable[Mention], sites: Sequence[Mention]) -> None:
    for finding in findings:
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
    Kind.PLACE: _Reader.preposition,
    Kind.VERB: _Reader.is_verb,
    Kind.THERE: _Reader.there,
    Kind.CLOSE: _Reader.close,
    Kind.BUT: _Reader.but,
    Kind.IGNORE: _Reader.ignore,
}
