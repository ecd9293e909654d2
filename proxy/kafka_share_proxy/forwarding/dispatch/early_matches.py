"""Early matches: checks of a request's bytes that show whether a feature wants the request. Each kind is a class.

`matcher` returns a function that is called for every request of an API in one version. The walk in C handles some kinds
itself (`request_inspection`).

If the bytes so far do not suffice, the result is True: the request is gathered, checked again, and then decoded. Bytes
that are not such a request go to the broker, except where a kind says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kafka_share_proxy.wire.codec import prefixes
from kafka_share_proxy.wire.codec.prefixes import SIZE_UNKNOWN, Unread
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.values import ZERO_UUID

ELEMENTS_MAX = 2_000
"""Maximum number of array elements read in one request: about a millisecond.

A longer request is wanted, and is judged after it is decoded in slices.
"""

Matcher = Callable[[memoryview], bool]
"""Predicate on the received part of a request frame, without size: True if the feature wants it."""


class EarlyMatch(Protocol):
    """Kinds of early matches."""

    def matcher(self, key: int, version: int) -> Matcher:
        """Return the matcher for one API version. Raises UnknownVersion or LocalProtocolError (`prefixes`)."""


def matcher_on_first_use(kind: EarlyMatch, key: int, version: int) -> Matcher:
    """Return a matcher that is made for its first request: most versions are never requested."""
    matcher: Matcher | None = None

    def matches(frame: memoryview) -> bool:
        nonlocal matcher
        matcher = matcher or kind.matcher(key, version)
        return matcher(frame)

    return matches


def _yes(_frame: memoryview) -> bool:
    return True


def _no(_frame: memoryview) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class EveryRequest:
    """Match of every request, for rare APIs."""

    def matcher(self, _key: int, _version: int) -> Matcher:
        return _yes


class Whenever(NamedTuple):
    """Wants every request while a condition is true."""

    condition: Callable[[], bool]

    def matcher(self, _key: int, _version: int) -> Matcher:
        condition = self.condition
        return lambda _frame: condition()


class FromVersion(NamedTuple):
    """Wants every request of this version or a later one."""

    lowest: int

    def matcher(self, key: int, version: int) -> Matcher:
        if version < self.lowest:
            return _no
        read = prefixes.of_request(key, version)

        def has_header(frame: memoryview) -> bool:
            try:
                return read(frame, len(frame)) is None
            except RemoteProtocolError:
                return False

        return has_header


class LongerThan(NamedTuple):
    """Wants requests longer than this number of bytes."""

    length: int

    def matcher(self, _key: int, _version: int) -> Matcher:
        length = self.length
        return lambda frame: len(frame) > length


class ContainsAny(NamedTuple):
    """Wants requests that contain one of these words. Handled in C for up to 4 words (`WordMatch`)."""

    words: tuple[bytes, ...]

    def matcher(self, _key: int, _version: int) -> Matcher:
        words = self.words

        def contains(frame: memoryview) -> bool:
            data = bytes(frame)
            return any(word in data for word in words)

        return contains


class ContainsNow(NamedTuple):
    """Wants requests that contain one of a changing set of words.

    A request of more than `searched` bytes is wanted if there are any words.
    """

    words: Collection[bytes]
    searched: int

    def matcher(self, _key: int, _version: int) -> Matcher:
        words, searched = self.words, self.searched

        def contains(frame: memoryview) -> bool:
            if not words:
                return False
            data = bytes(frame)
            return len(data) > searched or any(word in data for word in words)

        return contains


class ByGroupId(NamedTuple):
    """Wants requests that name a wanted group, also as an element of a list (OffsetFetch from v8 on)."""

    matches: Callable[[str], bool]
    has_any: Callable[[], bool] | None = None
    """Function that returns False while no group is wanted, so that requests are not read."""
    elements_max: int = ELEMENTS_MAX

    def matcher(self, key: int, version: int) -> Matcher:
        read, elements_max = prefixes.group_ids(key, version), self.elements_max
        matches, has_any = self.matches, self.has_any

        def names(frame: memoryview) -> bool:
            if has_any is not None and not has_any():
                return False
            try:
                group_ids = read(frame, len(frame), elements_max)
            except RemoteProtocolError:
                return False
            if type(group_ids) is str:
                return matches(group_ids)
            return group_ids is not None and (isinstance(group_ids, Unread) or any(map(matches, group_ids)))

        return names


class ByKnownGroup(NamedTuple):
    """Wants requests that name a known group or contain one of these words, as decided by `exact_match`.

    While all `unless` are empty, C handles requests with neither (`GroupMatch`).
    """

    exact_match: EarlyMatch
    groups: tuple[Mapping[str, Any], ...]
    unless: tuple[Sized, ...] = ()
    """While one of these collections is not empty, `exact_match` checks every request."""
    words: tuple[bytes, ...] = ()

    def matcher(self, key: int, version: int) -> Matcher:
        return self.exact_match.matcher(key, version)


class ByTopicPrefix(NamedTuple):
    """Wants requests that list a topic with this name prefix, and unreadable ones: decoding explains the error.

    A Produce to one other topic is handled in C (`TopicMatch`).
    """

    prefix: str
    elements_max: int = ELEMENTS_MAX

    def matcher(self, key: int, version: int) -> Matcher:
        read, elements_max = prefixes.topic_named(key, version, self.prefix), self.elements_max

        def lists(frame: memoryview) -> bool:
            try:
                return read(frame, SIZE_UNKNOWN, elements_max) is not False
            except RemoteProtocolError:
                return True

        return lists


class ByTopicId(NamedTuple):
    """Wants requests that list a wanted topic id, and unreadable ones, because decoding explains the error."""

    matches: Callable[[bytes], bool]
    elements_max: int = ELEMENTS_MAX

    def matcher(self, key: int, version: int) -> Matcher:
        read, elements_max, matches = prefixes.topic_ids(key, version), self.elements_max, self.matches

        def lists(frame: memoryview) -> bool:
            try:
                topics = read(frame, SIZE_UNKNOWN, elements_max)
            except RemoteProtocolError:
                return True
            return isinstance(topics, Unread) or any(map(matches, topics or ()))

        return lists


class ByUnknownTopicId(NamedTuple):
    """Wants requests that list a topic by an unknown id."""

    known: Mapping[bytes, None]
    elements_max: int = ELEMENTS_MAX

    def matcher(self, key: int, version: int) -> Matcher:
        read, elements_max, known = prefixes.topic_ids(key, version), self.elements_max, self.known
        array = prefixes.topics_at(key, version)

        def lists(frame: memoryview) -> bool:
            data = bytes(frame)
            try:
                if data.count(ZERO_UUID) >= array(data, len(data))[1]:
                    return False  # a topic that is listed by its name has an id of zeros
                topic_ids = read(data, len(data), elements_max)
            except RemoteProtocolError:
                return False
            return isinstance(topic_ids, Unread) or any(
                topic_id not in known and topic_id != ZERO_UUID for topic_id in topic_ids or ()
            )

        return lists


class ByIdOrTag(NamedTuple):
    """Wants Fetch requests from v13 on with an unknown topic id or tagged fields. Handled in C (`IdMatch`).

    Unreadable requests are wanted too, because decoding explains the error.
    """

    known: Mapping[bytes, None]
    elements_max: int = ELEMENTS_MAX

    def matcher(self, key: int, version: int) -> Matcher:
        read, elements_max, known = prefixes.topic_ids(key, version, untagged=True), self.elements_max, self.known

        def lists(frame: memoryview) -> bool:
            try:
                topic_ids = read(frame, len(frame), elements_max)
            except RemoteProtocolError:
                return True
            return isinstance(topic_ids, Unread) or not all(map(known.__contains__, topic_ids or ()))

        return lists


@dataclass(frozen=True, slots=True)
class AboutAllTopics:
    """Wants requests about all topics: their list of topics is null, or empty if it cannot be null."""

    def matcher(self, key: int, version: int) -> Matcher:
        read, count_of_all = prefixes.topics_at(key, version), -1 if prefixes.topics_nullable(key, version) else 0

        def is_about_all(frame: memoryview) -> bool:
            try:
                return bool(read(frame, len(frame))[1] == count_of_all)
            except RemoteProtocolError:
                return False

        return is_about_all


class ByVersion(NamedTuple):
    """Uses a different kind from each listed version on. Below the lowest, no request is wanted."""

    since: Mapping[int, EarlyMatch]

    def at(self, version: int) -> EarlyMatch:
        versions = [first_version for first_version in sorted(self.since) if first_version <= version]
        return self.since[versions[-1]] if versions else FromVersion(version + 1)

    def matcher(self, key: int, version: int) -> Matcher:
        return self.at(version).matcher(key, version)


class AnyOf(NamedTuple):
    """Wants requests that at least one of several kinds wants."""

    kinds: tuple[EarlyMatch, ...]

    def matcher(self, key: int, version: int) -> Matcher:
        matchers = [kind.matcher(key, version) for kind in self.kinds]
        return lambda frame: any(matcher(frame) for matcher in matchers)


def any_of(kinds: Sequence[EarlyMatch]) -> EarlyMatch:
    """Combine several kinds into one, which C handles if it handles each of them."""
    by_group = [kind for kind in kinds if isinstance(kind, ByKnownGroup)]
    if len(by_group) < len(kinds):
        return AnyOf(tuple(kinds))
    return ByKnownGroup(
        AnyOf(tuple(kind.exact_match for kind in by_group)),
        groups=tuple(group for kind in by_group for group in kind.groups),
        unless=tuple(collection for kind in by_group for collection in kind.unless),
        words=tuple(word for kind in by_group for word in kind.words),
    )


def kind_at(kind: EarlyMatch, version: int) -> EarlyMatch:
    return kind.at(version) if isinstance(kind, ByVersion) else kind
