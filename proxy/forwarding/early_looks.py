"""What a feature looks for in the bytes of a request, to tell whether it wants the request: each kind is a class.

`look` makes of a kind the function that is asked about every request of an API in one version. What stands where in
those bytes is known to `wire.prefixes` alone. The walk in C settles some kinds itself (`request_inspection`).

Where it cannot be told yet, the answer is yes: the request is gathered and looked at again, and then decoded. Bytes
that are no such request are nobody's, and the broker judges them, except where a kind says something else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.wire import prefixes
from proxy.wire.errors import RemoteProtocolError
from proxy.wire.prefixes import SIZE_UNKNOWN, Unread
from proxy.wire.values import ZERO_UUID

LOOKED_MAX = 2_000
"""Elements of arrays that are gone through in one request: they take about a millisecond. One with more is wanted, and
told of when it is decoded, which is done in slices."""

Look = Callable[[memoryview], bool]
"""What has come of a request frame, without its size -> whether the feature wants it. It decodes nothing."""


class EarlyLook(Protocol):
    """One kind of look."""

    def look(self, key: int, version: int) -> Look:
        """The look at requests of this API and version. Raises UnknownVersion or LocalProtocolError: see `prefixes`."""


def _yes(_frame: memoryview) -> bool:
    return True


def _no(_frame: memoryview) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class EveryRequest:
    """Whether a request is wanted is told from the decoded request only; for APIs that are rare."""

    def look(self, _key: int, _version: int) -> Look:
        """See EarlyLook."""
        return _yes


@dataclass(frozen=True, slots=True)
class Whenever:
    """Every request, as long as something is so."""

    is_so: Callable[[], bool]

    def look(self, _key: int, _version: int) -> Look:
        """See EarlyLook."""
        is_so = self.is_so
        return lambda _frame: is_so()


@dataclass(frozen=True, slots=True)
class FromVersion:
    """Every request of this version or a later one."""

    lowest: int

    def look(self, key: int, version: int) -> Look:
        """See EarlyLook."""
        if version < self.lowest:
            return _no
        read = prefixes.of_request(key, version)

        def has_header(frame: memoryview) -> bool:
            try:
                return read(frame, len(frame)) is None
            except RemoteProtocolError:
                return False

        return has_header


@dataclass(frozen=True, slots=True)
class LongerThan:
    """Requests with more bytes than these."""

    length: int

    def look(self, _key: int, _version: int) -> Look:
        """See EarlyLook."""
        length = self.length
        return lambda frame: len(frame) > length


@dataclass(frozen=True, slots=True)
class ContainsAny:
    """Requests in which one of these words stands, wherever. Settled in C for up to 4 words (`WordLook`)."""

    words: tuple[bytes, ...]

    def look(self, _key: int, _version: int) -> Look:
        """See EarlyLook."""
        words = self.words

        def contains(frame: memoryview) -> bool:
            data = bytes(frame)
            return any(word in data for word in words)

        return contains


@dataclass(frozen=True, slots=True)
class ContainsNow:
    """As `ContainsAny`, with words that come and go. A request with more bytes than `searched` is not searched: it is
    wanted if there are any words."""

    words: Collection[bytes]
    searched: int

    def look(self, _key: int, _version: int) -> Look:
        """See EarlyLook."""
        words, searched = self.words, self.searched

        def contains(frame: memoryview) -> bool:
            if not words:
                return False
            data = bytes(frame)
            return len(data) > searched or any(word in data for word in words)

        return contains


@dataclass(frozen=True, slots=True)
class ByGroupId:
    """Requests that name a group which is wanted, also as one of a list (OffsetFetch from v8 on)."""

    is_wanted: Callable[[str], bool]
    has_any: Callable[[], bool] | None = None
    """False: no group at all is wanted now, so no request is read."""
    most: int = LOOKED_MAX
    """Elements of arrays that are gone through."""

    def look(self, key: int, version: int) -> Look:
        """See EarlyLook."""
        read, most = prefixes.group_ids(key, version), self.most
        is_wanted, has_any = self.is_wanted, self.has_any

        def names(frame: memoryview) -> bool:
            if has_any is not None and not has_any():
                return False
            try:
                found = read(frame, len(frame), most)
            except RemoteProtocolError:
                return False
            if type(found) is str:
                return is_wanted(found)
            return found is not None and (isinstance(found, Unread) or any(map(is_wanted, found)))

        return names


@dataclass(frozen=True, slots=True)
class ByKnownGroup:
    """Requests that name a group which is known, or in which one of these words stands, as `exactly` tells.

    While `unless` are empty, what names no known group and has no word is not wanted: settled in C (`GroupLook`).
    """

    exactly: EarlyLook
    groups: tuple[Mapping[str, Any], ...]
    """By group id: dicts, which may grow and shrink."""
    unless: tuple[Sized, ...] = ()
    """May grow and shrink. While one of these is not empty, every request is looked at by `exactly`."""
    words: tuple[bytes, ...] = ()

    def look(self, key: int, version: int) -> Look:
        """See EarlyLook."""
        return self.exactly.look(key, version)


@dataclass(frozen=True, slots=True)
class ByTopicPrefix:
    """Requests that list a topic whose name begins so. What nobody can read is wanted as well: decoding it says why.

    A Produce to one other topic is settled in C (`TopicLook`).
    """

    prefix: str
    most: int = LOOKED_MAX
    """Elements of arrays that are gone through."""

    def look(self, key: int, version: int) -> Look:
        """See EarlyLook."""
        read, most = prefixes.topic_named(key, version, self.prefix), self.most

        def lists(frame: memoryview) -> bool:
            try:
                return read(frame, SIZE_UNKNOWN, most) is not False
            except RemoteProtocolError:
                return True

        return lists


@dataclass(frozen=True, slots=True)
class ByTopicId:
    """Requests that list a topic whose id is wanted. What nobody can read is wanted as well: decoding it says why."""

    is_wanted: Callable[[bytes], bool]
    most: int = LOOKED_MAX
    """Elements of arrays that are gone through."""

    def look(self, key: int, version: int) -> Look:
        """See EarlyLook."""
        read, most, is_wanted = prefixes.topic_ids(key, version), self.most, self.is_wanted

        def lists(frame: memoryview) -> bool:
            try:
                found = read(frame, SIZE_UNKNOWN, most)
            except RemoteProtocolError:
                return True
            return isinstance(found, Unread) or any(map(is_wanted, found or ()))

        return lists


@dataclass(frozen=True, slots=True)
class ByUnknownTopicId:
    """Requests that list a topic by an id that is not among those known. A topic that goes by its name has none."""

    known: Mapping[bytes, None]
    """May grow and shrink."""
    most: int = LOOKED_MAX
    """Elements of arrays that are gone through."""

    def look(self, key: int, version: int) -> Look:
        """See EarlyLook."""
        read, most, known = prefixes.topic_ids(key, version), self.most, self.known
        array = prefixes.topics_at(key, version)

        def lists(frame: memoryview) -> bool:
            data = bytes(frame)
            try:
                if data.count(ZERO_UUID) >= array(data, len(data))[1]:
                    return False  # each that goes by its name has an id of zeros
                found = read(data, len(data), most)
            except RemoteProtocolError:
                return False
            return isinstance(found, Unread) or any(id_ not in known and id_ != ZERO_UUID for id_ in found or ())

        return lists


@dataclass(frozen=True, slots=True)
class ByIdOrTag:
    """Fetch from v13 on: topics by an id that is not among those known, or tagged fields. Settled in C (`IdLook`).

    What nobody can read is wanted as well: decoding it says why.
    """

    known: Mapping[bytes, None]
    """May grow and shrink."""
    most: int = LOOKED_MAX
    """Elements of arrays that are gone through."""

    def look(self, key: int, version: int) -> Look:
        """See EarlyLook."""
        read, most, known = prefixes.topic_ids(key, version, untagged=True), self.most, self.known

        def lists(frame: memoryview) -> bool:
            try:
                found = read(frame, len(frame), most)
            except RemoteProtocolError:
                return True
            return isinstance(found, Unread) or not all(map(known.__contains__, found or ()))

        return lists


@dataclass(frozen=True, slots=True)
class AboutAllTopics:
    """Requests about all topics: their list of topics is null, or, where it cannot be null, empty."""

    def look(self, key: int, version: int) -> Look:
        """See EarlyLook."""
        read, all_ = prefixes.topics_at(key, version), -1 if prefixes.topics_nullable(key, version) else 0

        def asks(frame: memoryview) -> bool:
            try:
                return bool(read(frame, len(frame))[1] == all_)
            except RemoteProtocolError:
                return False

        return asks


@dataclass(frozen=True, slots=True)
class ByVersion:
    """Another kind from some version on: version -> kind; none below the lowest of them."""

    since: Mapping[int, EarlyLook]

    def at(self, version: int) -> EarlyLook:
        """The kind in this version."""
        found = [since for since in sorted(self.since) if since <= version]
        return self.since[found[-1]] if found else FromVersion(version + 1)

    def look(self, key: int, version: int) -> Look:
        """See EarlyLook."""
        return self.at(version).look(key, version)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Requests that one of several kinds wants."""

    kinds: tuple[EarlyLook, ...]

    def look(self, key: int, version: int) -> Look:
        """See EarlyLook."""
        looks = [kind.look(key, version) for kind in self.kinds]
        return lambda frame: any(look(frame) for look in looks)


def any_of(kinds: Sequence[EarlyLook]) -> EarlyLook:
    """Requests that one of several kinds wants, as one kind that C settles where it settles each."""
    known = [kind for kind in kinds if isinstance(kind, ByKnownGroup)]
    if len(known) < len(kinds):
        return AnyOf(tuple(kinds))
    return ByKnownGroup(
        AnyOf(tuple(each.exactly for each in known)),
        groups=tuple(group for each in known for group in each.groups),
        unless=tuple(one for each in known for one in each.unless),
        words=tuple(word for each in known for word in each.words),
    )


def kind_at(look: EarlyLook, version: int) -> EarlyLook:
    """What kind of look it is in this version."""
    return look.at(version) if isinstance(look, ByVersion) else look
