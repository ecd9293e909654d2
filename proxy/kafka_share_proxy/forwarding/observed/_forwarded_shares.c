/* Audit events of forwarded ShareFetch and ShareAcknowledge, each read in one pass. forwarded_shares.py has the Python
 * fallback. Nothing is reported of a message that cannot be read to its end. No read leaves the bytes: every length is
 * compared with the remaining bytes before it is used. Limited API of CPython 3.11.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

#include "../../wire/codec/frame_reader.h"

enum { VERSION = 2 }; /* forwarded_shares.BUILT_VERSION */
enum { SHARE_FETCH = 78, SHARE_ACKNOWLEDGE = 79, LOWEST = 1, HIGHEST = 2 };
enum { REQUEST_BODY = 8, RESPONSE_BODY = 4, UUID = 16, SHARE_KEY = UUID + 4, STRING_MAX = 0x7FFF };
enum { RENEW = 4, OUTCOMES = 4 };
enum { ROW = 52, ROW_BASE = 0, ROW_LAST = 8, ROW_POSITION = 32, ROW_SIZE = 36, ROW_COUNT = 44 }; /* of batches.ROW */
enum { TOUCHED_MAX = 10000, PIECES = 8, RANGE_MAX = 0x7FFFFFFF }; /* forwarded_shares.RANGE_MAX */

/* ---- bytes ---- */

static void skip_tags(Reader *from) {
    for (uint64_t count = unsigned_varint(from); count && !from->is_wrong; count--) {
        unsigned_varint(from);
        take(from, (int64_t)unsigned_varint(from));
    }
}

/* Return the bytes of a compact string, and get their number, -1 for null. */
static const uint8_t *text(Reader *from, int64_t *length) {
    *length = (int64_t)unsigned_varint(from) - 1;
    if (*length > STRING_MAX) from->is_wrong = 1;
    return *length < 0 ? NULL : take(from, *length);
}

static int is_text(const uint8_t *bytes, int64_t size) {
    for (int64_t i = 0; i < size; i++)
        if (bytes[i] > 0x7F) {
            PyObject *decoded = PyUnicode_DecodeUTF8((const char *)bytes, (Py_ssize_t)size, NULL);
            if (!decoded) PyErr_Clear();
            Py_XDECREF(decoded);
            return decoded != NULL;
        }
    return 1;
}

static void skip_text(Reader *from) {
    int64_t length;
    const uint8_t *bytes = text(from, &length);
    if (bytes && !is_text(bytes, length)) from->is_wrong = 1;
}

/* Read the count of a compact array whose elements have at least `least` bytes each. Null is an error. */
static int64_t array(Reader *from, int least) {
    int64_t count = (int64_t)unsigned_varint(from) - 1;
    if (count < 0 || count > (from->end - from->at) / least) from->is_wrong = 1;
    return from->is_wrong ? 0 : count;
}

static void put_int32(uint8_t *to, int64_t value) {
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)((uint64_t)value >> (24 - 8 * i));
}

/* ---- deliveries ---- */

typedef struct {
    int64_t first, last;
    double acquired_at, lock_s;
    int32_t attempt, renewals;
    PyObject *member;
} Delivery;

/* One share partition of a group. Its deliveries are in ascending order without overlaps. */
typedef struct Share {
    PyObject_HEAD
    PyObject *group, *place, *key;
    Delivery *held;
    size_t from, count, room;
    struct Share *before, *after; /* list of share partitions with deliveries, by the time of the last delivery */
    int is_touched;               /* true if it is in `touched`: there are sums to add to loads and fetches */
    long long rows, bytes, requests, first, last, rows_read, bytes_read;
    double hold_ms;
    int64_t unsampled, due; /* records not yet reported to the key samples, and the number at which they are sampled */
} Share;

typedef struct {
    PyObject_HEAD
    PyObject *offer, *now, *wall_ms, *walk, *sample, *add, *place_type; /* see forwarded_shares._watching_in_c */
    PyObject *outcomes[OUTCOMES], *brokers, *acquire, *settle;
    PyObject *shares;  /* group, topic id and partition as bytes -> Share */
    PyObject *touched; /* list of Share */
    Share *oldest, *newest;
    Py_ssize_t held, most, most_of_one;
} Shares;

/* A request that waits for its response: its body up to the end of its topics. */
typedef struct {
    PyObject_HEAD
    Shares *shares;
    PyObject *rewrite;
    uint8_t *body;
    Py_ssize_t size;
    int key, version, has_acks;
} ShareRequest;

typedef struct {
    PyObject_HEAD
    Shares *shares;
    PyObject *route, *rewrite, *amend;
    int key, version;
} Watch;

static PyTypeObject *share_type, *request_type, *shares_type;
static PyObject *name_rewrite;

static void free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static void unlink_share(Shares *of, Share *share) {
    if (share->before) share->before->after = share->after;
    else if (of->oldest == share) of->oldest = share->after;
    if (share->after) share->after->before = share->before;
    else if (of->newest == share) of->newest = share->before;
    share->before = share->after = NULL;
}

static void link_newest(Shares *of, Share *share) {
    if (of->newest == share) return;
    unlink_share(of, share);
    share->before = of->newest;
    if (of->newest) of->newest->after = share;
    else of->oldest = share;
    of->newest = share;
}

static void drop_deliveries(Share *share) {
    for (size_t i = 0; i < share->count; i++) Py_DECREF(share->held[share->from + i].member);
    share->count = share->from = 0;
}

static void share_dealloc(PyObject *object) {
    Share *share = (Share *)object;
    drop_deliveries(share);
    PyMem_Free(share->held);
    Py_XDECREF(share->group);
    Py_XDECREF(share->place);
    Py_XDECREF(share->key);
    free_object(object);
}

static int touch(Shares *of, Share *share) {
    if (share->is_touched) return 0;
    share->is_touched = 1;
    return PyList_Append(of->touched, (PyObject *)share);
}

/* Replace deliveries `low` to `high` (exclusive). The members of the inserted ones are borrowed. */
static int splice(Share *share, size_t low, size_t high, const Delivery *inserted, size_t count) {
    size_t removed = high - low, remaining = share->count - removed + count;
    if (share->from && share->from + remaining > share->room && 2 * remaining <= share->room) {
        memmove(share->held, share->held + share->from, share->count * sizeof *share->held);
        share->from = 0;
    }
    if (share->from + remaining > share->room) {
        size_t room = 2 * remaining + 4;
        Delivery *held = PyMem_Malloc(room * sizeof *held);
        if (!held) {
            PyErr_NoMemory();
            return -1;
        }
        if (share->count) memcpy(held, share->held + share->from, share->count * sizeof *held);
        PyMem_Free(share->held);
        share->held = held;
        share->room = room;
        share->from = 0;
    }
    Delivery *held = share->held + share->from;
    for (size_t i = 0; i < count; i++) Py_INCREF(inserted[i].member);
    for (size_t i = low; i < high; i++) Py_DECREF(held[i].member);
    if (!low && count <= removed) { /* at the front, the common case: nothing is moved */
        share->from += removed - count;
        held += removed - count;
    } else {
        memmove(held + low + count, held + high, (share->count - high) * sizeof *held);
    }
    if (count) memcpy(held + low, inserted, count * sizeof *held);
    share->count = remaining;
    return 0;
}

/* Deliveries that were removed from a range. They own references to their members. */
typedef struct {
    Delivery few[PIECES], *all;
    size_t count;
} Removed;

static void free_removed(Removed *removed) {
    for (size_t i = 0; i < removed->count; i++) Py_DECREF(removed->all[i].member);
    if (removed->all != removed->few) PyMem_Free(removed->all);
}

static size_t first_ending_at(const Share *share, int64_t offset) {
    size_t low = 0, high = share->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (share->held[share->from + middle].last < offset) low = middle + 1;
        else high = middle;
    }
    return low;
}

static int copy_deliveries(Removed *removed, const Share *share, size_t low, size_t high) {
    removed->count = high - low;
    removed->all = removed->count <= PIECES ? removed->few : PyMem_Malloc(removed->count * sizeof *removed->all);
    if (!removed->all) {
        PyErr_NoMemory();
        return -1;
    }
    if (removed->count) memcpy(removed->all, share->held + share->from + low, removed->count * sizeof *removed->all);
    for (size_t i = 0; i < removed->count; i++) Py_INCREF(removed->all[i].member);
    return 0;
}

/* Replace the deliveries in a range by `inserted`, or by nothing (NULL). `removed` gets them, cut to the range. */
static int replace(Shares *of, Share *share, int64_t first, int64_t last, const Delivery *inserted, Removed *removed) {
    size_t low = first_ending_at(share, first), high = low, count = 0;
    Delivery pieces[3];
    while (high < share->count && share->held[share->from + high].first <= last) high++;
    if (copy_deliveries(removed, share, low, high) < 0) return -1;
    Delivery *begin = removed->all, *end = removed->all + removed->count - 1;
    if (removed->count && begin->first < first) {
        pieces[count] = *begin;
        pieces[count++].last = first - 1;
        begin->first = first;
    }
    if (inserted) pieces[count++] = *inserted;
    if (removed->count && end->last > last) {
        pieces[count] = *end;
        pieces[count++].first = last + 1;
        end->last = last;
    }
    if (splice(share, low, high, pieces, count) < 0) {
        free_removed(removed);
        return -1;
    }
    of->held += (Py_ssize_t)count - (Py_ssize_t)removed->count;
    return 0;
}

static int forget(Shares *of, Share *share) {
    unlink_share(of, share);
    of->held -= (Py_ssize_t)share->count;
    drop_deliveries(share);
    return share->is_touched ? 0 : PyDict_DelItem(of->shares, share->key);
}

/* Store a delivery. It replaces earlier deliveries of its offsets. */
static int hold(Shares *of, Share *share, const Delivery *delivery) {
    Removed replaced;
    link_newest(of, share);
    if (!share->count || share->held[share->from + share->count - 1].last < delivery->first) {
        if (splice(share, share->count, share->count, delivery, 1) < 0) return -1;
        of->held++;
    } else {
        if (replace(of, share, delivery->first, delivery->last, delivery, &replaced) < 0) return -1;
        free_removed(&replaced);
    }
    if ((Py_ssize_t)share->count > of->most_of_one) {
        if (splice(share, 0, 1, NULL, 0) < 0) return -1;
        of->held--;
    }
    return of->held > of->most ? forget(of, of->oldest) : 0;
}

/* True if two members are equal. Either may be None. */
static int is_same(PyObject *left, PyObject *right) {
    if (left == right || left == Py_None || right == Py_None) return left == right;
    return PyUnicode_Compare(left, right) == 0;
}

/* ---- events ---- */

/* Group and member of the request, and the time of its response. */
typedef struct {
    Shares *of;
    const uint8_t *group;
    int64_t group_size;
    PyObject *member, *refused; /* refused: set of SHARE_KEY bytes of refused partitions, NULL if there are none */
    double now;
    long long wall_ms;
    int64_t lock_ms;
    PyObject *frame;
} Reporting;

static int read_clocks(Reporting *to) {
    PyObject *now = PyObject_CallNoArgs(to->of->now), *wall = now ? PyObject_CallNoArgs(to->of->wall_ms) : NULL;
    to->now = now ? PyFloat_AsDouble(now) : 0;
    to->wall_ms = wall ? PyLong_AsLongLong(wall) : 0;
    Py_XDECREF(now);
    Py_XDECREF(wall);
    return PyErr_Occurred() ? -1 : 0;
}

static Share *new_share(Reporting *to, PyObject *key, const uint8_t *topic_id, int64_t partition) {
    Share *share = PyObject_New(Share, share_type);
    if (!share) return NULL;
    memset((char *)share + offsetof(Share, group), 0, sizeof *share - offsetof(Share, group));
    share->key = Py_NewRef(key);
    share->group = PyUnicode_DecodeUTF8((const char *)to->group, (Py_ssize_t)to->group_size, NULL);
    share->place = PyObject_CallFunction(to->of->place_type, "y#L", (const char *)topic_id, (Py_ssize_t)UUID, (long long)partition);
    if (!share->group || !share->place || PyDict_SetItem(to->of->shares, key, (PyObject *)share) < 0) {
        Py_DECREF(share);
        return NULL;
    }
    Py_DECREF(share); /* the dict owns it */
    return share;
}

/* Return the share partition, borrowed and touched; NULL: exception. */
static Share *share_of(Reporting *to, const uint8_t *topic_id, int64_t partition) {
    PyObject *key = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)to->group_size + SHARE_KEY);
    if (!key) return NULL;
    uint8_t *bytes = (uint8_t *)PyBytes_AsString(key);
    if (to->group_size) memcpy(bytes, to->group, (size_t)to->group_size);
    memcpy(bytes + to->group_size, topic_id, UUID);
    put_int32(bytes + to->group_size + UUID, partition);
    Share *share = (Share *)PyDict_GetItemWithError(to->of->shares, key);
    if (!share && !PyErr_Occurred()) share = new_share(to, key, topic_id, partition);
    Py_DECREF(key);
    return share && touch(to->of, share) == 0 ? share : NULL;
}

static int offer(Reporting *to, PyObject *kind, const Share *share, PyObject *values) {
    PyObject *result = values
        ? PyObject_CallFunctionObjArgs(to->of->offer, kind, share->place, share->group, to->member, values, NULL)
        : NULL;
    Py_XDECREF(values);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static int report_settle(Reporting *to, Share *share, int64_t first, int64_t last, int64_t kind, const Delivery *of) {
    PyObject *outcome = to->of->outcomes[kind], *brokers = to->of->brokers;
    if (!of)
        return offer(to, to->of->settle, share,
                     Py_BuildValue("(LLOOOOOOO)", (long long)first, (long long)last, Py_None, Py_None, outcome, Py_None, Py_None, Py_None, brokers));
    double held_s = to->now > of->acquired_at ? to->now - of->acquired_at : 0;
    double beyond_s = held_s > of->lock_s && of->renewals ? held_s - of->lock_s : 0;
    share->hold_ms += held_s * 1000 * (double)(of->last - of->first + 1);
    return offer(to, to->of->settle, share,
                 Py_BuildValue("(LLiLOiLOO)", (long long)first, (long long)last, (int)of->attempt, to->wall_ms - (long long)rint(held_s * 1000),
                               outcome, (int)of->renewals, (long long)rint(beyond_s * 1000), Py_None, brokers));
}

/* A member settled a range: report each delivery in it, and the offsets between them without one. */
static int settle(Reporting *to, Share *share, int64_t first, int64_t last, int64_t kind) {
    Removed removed;
    if (replace(to->of, share, first, last, NULL, &removed) < 0) return -1;
    if (!share->count) unlink_share(to->of, share);
    int result = 0, is_over = 0;
    for (size_t i = 0; i < removed.count && !result; i++) {
        const Delivery *each = &removed.all[i];
        if (!is_same(each->member, to->member)) continue;
        if (first < each->first) result = report_settle(to, share, first, each->first - 1, kind, NULL);
        if (!result) result = report_settle(to, share, each->first, each->last, kind, each);
        is_over = each->last == last;
        if (!is_over) first = each->last + 1; /* `last` may be the maximum of int64 */
    }
    free_removed(&removed);
    return result || is_over ? result : report_settle(to, share, first, last, kind, NULL);
}

static int renew(Reporting *to, Share *share, int64_t first, int64_t last) {
    Removed removed, replaced;
    if (replace(to->of, share, first, last, NULL, &removed) < 0) return -1;
    int result = 0;
    for (size_t i = 0; i < removed.count && !result; i++) {
        Delivery *each = &removed.all[i];
        each->renewals += is_same(each->member, to->member);
        result = replace(to->of, share, each->first, each->last, each, &replaced);
        if (!result) free_removed(&replaced);
    }
    free_removed(&removed);
    return result;
}

/* ---- acknowledgements of a request ---- */

static int report_run(Reporting *to, Share *share, int64_t first, int64_t last, int64_t kind) {
    if (first > last) return 0;
    if (kind == RENEW) return renew(to, share, first, last);
    return kind >= 0 && kind < OUTCOMES ? settle(to, share, first, last, kind) : 0;
}

/* Report runs of one type. A single type applies to all offsets of its batch. Ignore more types than there are offsets. */
static int report_batch(Reporting *to, Share *share, int64_t first, int64_t last, const uint8_t *types, int64_t count) {
    if (count == 1) return report_run(to, share, first, last, (int8_t)types[0]);
    if (first > INT64_MAX - count) return 0;
    for (int64_t at = 0, next; at < count; at = next) {
        for (next = at + 1; next < count && types[next] == types[at];) next++;
        if (report_run(to, share, first + at, first + next - 1, (int8_t)types[at]) < 0) return -1;
    }
    return 0;
}

static int is_refused(const Reporting *to, const uint8_t *topic_id, int64_t partition) {
    uint8_t bytes[SHARE_KEY];
    if (!to->refused) return 0;
    memcpy(bytes, topic_id, UUID);
    put_int32(bytes + UUID, partition);
    PyObject *key = PyBytes_FromStringAndSize((const char *)bytes, SHARE_KEY);
    int is_member = key ? PySet_Contains(to->refused, key) : -1;
    Py_XDECREF(key);
    return is_member;
}

/* Read the acknowledgement batches of one partition, and report them if `to` is set. Return their count; -1: exception. */
static int64_t read_acknowledgements(Reader *from, Reporting *to, const uint8_t *topic_id) {
    int64_t partition = number(from, 4), count = array(from, 18);
    int is_refused_partition = to && count && !from->is_wrong ? is_refused(to, topic_id, partition) : 1;
    Share *share = is_refused_partition ? NULL : share_of(to, topic_id, partition);
    if (is_refused_partition < 0 || (!is_refused_partition && !share)) return -1;
    for (int64_t i = 0; i < count && !from->is_wrong; i++) {
        int64_t first = number(from, 8), last = number(from, 8), types = array(from, 1);
        const uint8_t *kinds = take(from, types);
        skip_tags(from);
        if (share && !from->is_wrong && report_batch(to, share, first, last, kinds, types) < 0) return -1;
    }
    skip_tags(from);
    return count;
}

/* Read the topics of a request. Return the number of their acknowledgement batches; -1: exception. */
static int64_t read_request_topics(Reader *from, Reporting *to) {
    int64_t batches = 0;
    for (int64_t topics = array(from, UUID + 2); topics > 0 && !from->is_wrong; topics--) {
        const uint8_t *topic_id = take(from, UUID);
        for (int64_t count = array(from, 6); count > 0 && !from->is_wrong; count--) {
            int64_t count_of_partition = read_acknowledgements(from, to, topic_id);
            if (count_of_partition < 0) return -1;
            batches += count_of_partition;
        }
        skip_tags(from);
    }
    return batches;
}

static void skip_forgotten(Reader *from) {
    for (int64_t topics = array(from, UUID + 2); topics > 0 && !from->is_wrong; topics--) {
        take(from, UUID);
        take(from, 4 * array(from, 4));
        skip_tags(from);
    }
}

/* Skip the fields from the group to the topics. */
static void skip_settings(Reader *from, int key, int version) {
    skip_text(from);
    skip_text(from);
    take(from, key == SHARE_FETCH ? version >= 2 ? 26 : 24 : version >= 2 ? 5 : 4);
}

/* Return a request that waits for its response, a new reference; NULL: it cannot be read, or there is an exception. */
static PyObject *new_request(const Watch *watch, PyObject *rewrite, const uint8_t *frame, Py_ssize_t size) {
    Reader from = {frame, REQUEST_BODY, size, size < REQUEST_BODY, 1};
    int64_t client_id = number(&from, 2);
    if (client_id > 0) take(&from, client_id);
    skip_tags(&from);
    Py_ssize_t begin = from.at;
    skip_settings(&from, watch->key, watch->version);
    int64_t batches = read_request_topics(&from, NULL);
    Py_ssize_t end = from.at;
    if (watch->key == SHARE_FETCH) skip_forgotten(&from);
    skip_tags(&from);
    if (from.is_wrong || from.at != size || batches < 0 || client_id < -1) return NULL;
    ShareRequest *request = PyObject_New(ShareRequest, request_type);
    if (!request) return NULL;
    request->shares = (Shares *)Py_NewRef((PyObject *)watch->shares);
    request->rewrite = Py_NewRef(rewrite);
    request->key = watch->key;
    request->version = watch->version;
    request->has_acks = batches > 0;
    request->size = end - begin;
    request->body = PyMem_Malloc((size_t)request->size);
    if (!request->body) {
        Py_DECREF(request);
        return PyErr_NoMemory();
    }
    memcpy(request->body, frame + begin, (size_t)request->size);
    return (PyObject *)request;
}

/* ---- responses ---- */

/* One partition of a response. */
typedef struct {
    const uint8_t *topic_id;
    int64_t partition, error, acknowledge_error, acquired;
    Py_ssize_t records_at, records_size;
    Reader ranges; /* start of the acquired ranges */
} ResponsePartition;

static void skip_leader(Reader *from) {
    take(from, 8);
    skip_tags(from);
}

static void read_fetched(Reader *from, ResponsePartition *to) {
    to->error = number(from, 2);
    skip_text(from);
    to->acknowledge_error = number(from, 2);
    skip_text(from);
    skip_leader(from);
    int64_t size = (int64_t)unsigned_varint(from) - 1;
    to->records_at = from->at;
    to->records_size = (Py_ssize_t)size;
    take(from, size);
    to->acquired = array(from, 19);
    to->ranges = *from;
    for (int64_t i = 0; i < to->acquired && !from->is_wrong; i++) {
        int64_t first = number(from, 8), last = number(from, 8);
        take(from, 2);
        skip_tags(from);
        if (first < 0 || last < first || last - first >= RANGE_MAX) from->is_wrong = 1; /* no broker returns this */
    }
}

static void read_partition(Reader *from, ResponsePartition *to, int key) {
    to->partition = number(from, 4);
    to->acquired = 0;
    if (key == SHARE_FETCH) {
        read_fetched(from, to);
    } else {
        to->acknowledge_error = to->error = number(from, 2);
        skip_text(from);
        skip_leader(from);
    }
    skip_tags(from);
}

typedef int (*Visit)(Reporting *, const ResponsePartition *);

/* Visit every partition of a response; -1: exception. */
static int read_response_topics(Reader *from, int key, Reporting *to, Visit visit) {
    for (int64_t topics = array(from, UUID + 2); topics > 0 && !from->is_wrong; topics--) {
        ResponsePartition partition = {0};
        partition.topic_id = take(from, UUID);
        for (int64_t count = array(from, 15); count > 0 && !from->is_wrong; count--) {
            read_partition(from, &partition, key);
            if (!from->is_wrong && visit(to, &partition) < 0) return -1;
        }
        skip_tags(from);
    }
    return 0;
}

static void skip_endpoints(Reader *from) {
    for (int64_t count = array(from, 10); count > 0 && !from->is_wrong; count--) {
        take(from, 4);
        skip_text(from);
        take(from, 4);
        skip_text(from);
        skip_tags(from);
    }
}

static int add_refused(Reporting *to, const ResponsePartition *partition) {
    uint8_t bytes[SHARE_KEY];
    if (!partition->acknowledge_error) return 0;
    if (!to->refused && !(to->refused = PySet_New(NULL))) return -1;
    memcpy(bytes, partition->topic_id, UUID);
    put_int32(bytes + UUID, partition->partition);
    PyObject *key = PyBytes_FromStringAndSize((const char *)bytes, SHARE_KEY);
    int result = key ? PySet_Add(to->refused, key) : -1;
    Py_XDECREF(key);
    return result;
}

static int64_t of_row(const char *row, int at, size_t size) {
    int64_t long_ = 0;
    int32_t short_ = 0;
    memcpy(size == 8 ? (void *)&long_ : (void *)&short_, row + at, size);
    return size == 8 ? long_ : short_;
}

/* Add complete batches to the sums of fetches. Return the number of their records. */
static int64_t add_fetched(Share *share, const char *rows, Py_ssize_t count) {
    const char *last_row = rows + (count - 1) * ROW;
    int64_t first = of_row(rows, ROW_BASE, 8), last = of_row(last_row, ROW_LAST, 8);
    share->first = share->requests && share->first < first ? share->first : first;
    share->last = share->requests && share->last > last ? share->last : last;
    share->requests++;
    share->bytes_read += (uint32_t)of_row(last_row, ROW_POSITION, 4) + (int64_t)(uint32_t)of_row(last_row, ROW_SIZE, 4) - (uint32_t)of_row(rows, ROW_POSITION, 4);
    int64_t records = 0;
    for (; count > 0; count--, rows += ROW) records += of_row(rows, ROW_COUNT, 4);
    share->rows_read += records;
    return records;
}

/* Report batches to the key samples once enough records of the partition were read. */
static int sample(const Reporting *to, Share *share, PyObject *rows, PyObject *records, int64_t count) {
    const int64_t unsampled = share->unsampled;
    if ((share->unsampled += count) < share->due) return 0;
    share->unsampled = 0;
    PyObject *result = PyObject_CallFunction(to->of->sample, "OOOL", share->place, rows, records, (long long)unsampled);
    const double due = result ? PyFloat_AsDouble(result) : 0;
    Py_XDECREF(result);
    share->due = due < 1e18 ? (int64_t)due : INT64_MAX;
    return PyErr_Occurred() ? -1 : 0;
}

/* Report the batches of a partition. Ignore bytes that are not a batch. */
static int report_fetched(Reporting *to, Share *share, const ResponsePartition *partition) {
    PyObject *records = PySequence_GetSlice(to->frame, partition->records_at, partition->records_at + partition->records_size);
    PyObject *walked = records ? PyObject_CallFunction(to->of->walk, "Oi", records, -1) : NULL;
    int result = walked ? 0 : -1;
    if (records && !walked && PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        result = 0;
    }
    PyObject *rows = walked ? PyTuple_GetItem(walked, 0) : NULL;
    char *bytes;
    Py_ssize_t size = 0;
    if (walked && (!rows || PyBytes_AsStringAndSize(rows, &bytes, &size) < 0)) result = -1;
    if (!result && size >= ROW) {
        int64_t count = add_fetched(share, bytes, size / ROW);
        result = sample(to, share, rows, records, count);
    }
    Py_XDECREF(walked);
    Py_XDECREF(records);
    return result;
}

static int report_range(Reporting *to, Share *share, Reader *from, int64_t bytes) {
    int64_t first = number(from, 8), last = number(from, 8), attempt = number(from, 2);
    skip_tags(from);
    PyObject *values = Py_BuildValue("(LLiLLO)", (long long)first, (long long)last, (int)attempt, (long long)bytes,
                                     (long long)to->lock_ms, to->of->brokers);
    if (offer(to, to->of->acquire, share, values) < 0) return -1;
    share->rows += last - first + 1;
    Delivery delivery = {first, last, to->now, (double)to->lock_ms / 1000, (int32_t)attempt, 0, to->member};
    return hold(to->of, share, &delivery);
}

static int report_acquired(Reporting *to, const ResponsePartition *partition) {
    if (partition->error || !partition->acquired) return 0;
    Share *share = share_of(to, partition->topic_id, partition->partition);
    if (!share) return -1;
    Reader from = partition->ranges;
    share->bytes += partition->records_size;
    for (int64_t i = 0; i < partition->acquired; i++)
        if (report_range(to, share, &from, i ? 0 : partition->records_size) < 0) return -1;
    return partition->records_size ? report_fetched(to, share, partition) : 0;
}

/* Read group and member of the request. 0; -1: exception. */
static int read_member(Reporting *to, Reader *body) {
    int64_t size;
    to->group = text(body, &to->group_size);
    to->group_size = to->group ? to->group_size : 0;
    const uint8_t *member = text(body, &size);
    to->member = member ? PyUnicode_DecodeUTF8((const char *)member, (Py_ssize_t)size, NULL) : Py_NewRef(Py_None);
    return to->member ? 0 : -1;
}

static int flush(Shares *of);

/* Report a response that was read to its end; `partitions`: from its topics on. */
static int report_response(const ShareRequest *request, Reporting *to, Reader partitions) {
    Reader body = {request->body, 0, request->size, 0, 1};
    if (read_clocks(to) < 0 || read_member(to, &body) < 0) return -1;
    if (request->has_acks) {
        body.at = 0;
        skip_settings(&body, request->key, request->version);
        if (read_request_topics(&body, to) < 0) return -1;
    }
    if (request->key == SHARE_FETCH && read_response_topics(&partitions, request->key, to, report_acquired) < 0) return -1;
    return PyList_Size(to->of->touched) > TOUCHED_MAX ? flush(to->of) : 0;
}

static int read_response(const ShareRequest *request, PyObject *frame, const uint8_t *bytes, Py_ssize_t size) {
    Reporting to = {.of = request->shares, .frame = frame};
    Reader from = {bytes, RESPONSE_BODY, size, size < RESPONSE_BODY, 1};
    skip_tags(&from);
    take(&from, 4); /* throttle time */
    int64_t error = number(&from, 2);
    skip_text(&from);
    if (request->key == SHARE_FETCH || request->version >= 2) to.lock_ms = number(&from, 4);
    Reader partitions = from;
    int result = read_response_topics(&from, request->key, &to, add_refused);
    skip_endpoints(&from);
    skip_tags(&from);
    if (!result && !from.is_wrong && from.at == size && !error) result = report_response(request, &to, partitions);
    Py_XDECREF(to.refused);
    Py_XDECREF(to.member);
    return result;
}

static PyObject *request_call(PyObject *self, PyObject *args, PyObject *names) {
    ShareRequest *request = (ShareRequest *)self;
    PyObject *frame, *context;
    Py_buffer buffer;
    (void)names;
    if (!PyArg_ParseTuple(args, "OO", &frame, &context) || PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE) < 0) return NULL;
    int result = read_response(request, frame, buffer.buf, buffer.len);
    PyBuffer_Release(&buffer);
    if (result < 0) return NULL;
    return request->rewrite == Py_None ? Py_NewRef(Py_None) : PyObject_Call(request->rewrite, args, NULL);
}

static PyObject *request_rewrite(PyObject *self, void *nothing) {
    (void)nothing;
    return Py_NewRef(self);
}

static PyObject *request_known(PyObject *self, void *nothing) {
    (void)self;
    (void)nothing;
    Py_RETURN_NONE;
}

static PyObject *request_produce_version(PyObject *self, void *nothing) {
    (void)self;
    (void)nothing;
    return PyLong_FromLong(-2);
}

static void request_dealloc(PyObject *self) {
    ShareRequest *request = (ShareRequest *)self;
    Py_XDECREF((PyObject *)request->shares);
    Py_XDECREF(request->rewrite);
    PyMem_Free(request->body);
    free_object(self);
}

static PyMemberDef request_members[] = {
    {"key", T_INT, offsetof(ShareRequest, key), READONLY, "API key."},
    {"version", T_INT, offsetof(ShareRequest, version), READONLY, "API version."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef request_properties[] = {
    {"rewrite", request_rewrite, NULL, "This object: the response is gathered, and this object is called with it.", NULL},
    {"known", request_known, NULL, "None, for the walk in C: no rewritten responses are known.", NULL},
    {"produce_version", request_produce_version, NULL, "-2, for the walk in C: not a Produce.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot request_slots[] = {
    {Py_tp_doc, "A request that waits for its response. See forwarded_shares."},
    {Py_tp_call, request_call},
    {Py_tp_members, request_members},
    {Py_tp_getset, request_properties},
    {Py_tp_dealloc, request_dealloc},
    {0, NULL},
};

static PyType_Slot share_slots[] = {{Py_tp_dealloc, share_dealloc}, {0, NULL}};

#define INTERNAL_TYPE (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION)

static PyType_Spec request_spec = {"kafka_share_proxy.forwarding.observed._forwarded_shares.ShareRequest", sizeof(ShareRequest), 0, INTERNAL_TYPE, request_slots};
static PyType_Spec share_spec = {"kafka_share_proxy.forwarding.observed._forwarded_shares.Share", sizeof(Share), 0, INTERNAL_TYPE, share_slots};

/* ---- watched routes ---- */

static int watch_init(PyObject *object, PyObject *args, PyObject *names) {
    Watch *self = (Watch *)object;
    PyObject *shares, *route, *rewrite, *amend;
    (void)names;
    if (self->shares || !PyArg_ParseTuple(args, "O!OOOii", shares_type, &shares, &route, &rewrite, &amend, &self->key, &self->version)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a watch is initialised once");
        return -1;
    }
    if ((self->key != SHARE_FETCH && self->key != SHARE_ACKNOWLEDGE) || self->version < LOWEST || self->version > HIGHEST) {
        PyErr_Format(PyExc_ValueError, "API %d v%d is not read here", self->key, self->version);
        return -1;
    }
    self->shares = (Shares *)Py_NewRef(shares);
    self->route = Py_NewRef(route);
    self->rewrite = Py_NewRef(rewrite);
    self->amend = Py_NewRef(amend);
    return 0;
}

/* Return the treatment of the response without audit, a new reference. `amended`: result of `amend`. */
static PyObject *rewrite_of(const Watch *self, PyObject *amended) {
    return amended == Py_None ? Py_NewRef(self->rewrite) : PyObject_GetAttr(amended, name_rewrite);
}

static PyObject *watch_frame(const Watch *self, PyObject *route, PyObject *frame) {
    Py_buffer buffer;
    PyObject *rewrite = rewrite_of(self, route);
    if (!rewrite || PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE) < 0) {
        Py_XDECREF(rewrite);
        return NULL;
    }
    PyObject *request = new_request(self, rewrite, buffer.buf, buffer.len);
    PyBuffer_Release(&buffer);
    Py_DECREF(rewrite);
    if (request || PyErr_Occurred()) return request;
    return Py_NewRef(route == Py_None ? self->route : route);
}

static PyObject *watch_call(PyObject *object, PyObject *args, PyObject *names) {
    Watch *self = (Watch *)object;
    PyObject *frame;
    (void)names;
    if (!PyArg_ParseTuple(args, "O", &frame)) return NULL;
    PyObject *route = self->amend == Py_None ? Py_NewRef(Py_None) : PyObject_CallFunctionObjArgs(self->amend, frame, NULL);
    PyObject *treatment = route ? watch_frame(self, route, frame) : NULL;
    Py_XDECREF(route);
    return treatment;
}

static int watch_traverse(PyObject *object, visitproc visit, void *arg) {
    Watch *self = (Watch *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)self->shares);
    Py_VISIT(self->route);
    Py_VISIT(self->rewrite);
    Py_VISIT(self->amend);
    return 0;
}

static int watch_clear(PyObject *object) {
    Watch *self = (Watch *)object;
    Py_CLEAR(self->shares);
    Py_CLEAR(self->route);
    Py_CLEAR(self->rewrite);
    Py_CLEAR(self->amend);
    return 0;
}

static void watch_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    watch_clear(self);
    free_object(self);
}

static PyType_Slot watch_slots[] = {
    {Py_tp_doc, "Watch(shares, route, rewrite, amend, key, version): see forwarded_shares."},
    {Py_tp_init, watch_init},
    {Py_tp_call, watch_call},
    {Py_tp_traverse, watch_traverse},
    {Py_tp_clear, watch_clear},
    {Py_tp_dealloc, watch_dealloc},
    {0, NULL},
};

static PyType_Spec watch_spec = {
    "kafka_share_proxy.forwarding.observed._forwarded_shares.Watch", sizeof(Watch), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, watch_slots,
};

/* ---- all share partitions ---- */

static PyObject *sums_of(const Share *share) {
    return Py_BuildValue("(OO(LLd)L(LLLL)L)", share->place, share->group, share->rows, share->bytes, share->hold_ms, share->requests,
                         share->first, share->last, share->rows_read, share->bytes_read, (long long)share->unsampled);
}

static int flush_share(Shares *of, Share *share) {
    PyObject *sums = sums_of(share), *done = sums ? PyObject_Call(of->add, sums, NULL) : NULL;
    share->is_touched = 0;
    share->rows = share->bytes = share->requests = share->first = share->last = share->rows_read = share->bytes_read = 0;
    share->hold_ms = 0;
    share->unsampled = share->due = 0;
    Py_XDECREF(sums);
    Py_XDECREF(done);
    return !done ? -1 : share->count ? 0 : PyDict_DelItem(of->shares, share->key);
}

static int flush(Shares *of) {
    PyObject *touched = of->touched;
    of->touched = PyList_New(0);
    int result = of->touched ? 0 : -1;
    if (result < 0) of->touched = Py_NewRef(touched);
    for (Py_ssize_t i = 0; !result && i < PyList_Size(touched); i++) result = flush_share(of, (Share *)PyList_GetItem(touched, i));
    Py_DECREF(touched);
    return result;
}

static PyObject *shares_flush(PyObject *self, PyObject *none) {
    (void)none;
    return flush((Shares *)self) < 0 ? NULL : Py_NewRef(Py_None);
}

static int shares_init(PyObject *object, PyObject *args, PyObject *names) {
    Shares *self = (Shares *)object;
    PyObject *each[7], *outcomes;
    (void)names;
    if (self->shares) {
        PyErr_SetString(PyExc_TypeError, "shares are initialised once");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "OOOOOOOO!Onn", &each[0], &each[1], &each[2], &each[3], &each[4], &each[5], &each[6],
                          &PyTuple_Type, &outcomes, &self->brokers, &self->most, &self->most_of_one))
        return -1;
    PyObject **to[] = {&self->offer, &self->now, &self->wall_ms, &self->walk, &self->sample, &self->add, &self->place_type};
    for (int i = 0; i < 7; i++) *to[i] = Py_NewRef(each[i]);
    Py_INCREF(self->brokers);
    for (int i = 0; i < OUTCOMES; i++)
        if (!(self->outcomes[i] = Py_XNewRef(PyTuple_GetItem(outcomes, i)))) return -1;
    self->acquire = PyUnicode_InternFromString("acquire");
    self->settle = PyUnicode_InternFromString("settle");
    self->shares = PyDict_New();
    self->touched = PyList_New(0);
    return self->acquire && self->settle && self->shares && self->touched ? 0 : -1;
}

static int shares_traverse(PyObject *object, visitproc visit, void *arg) {
    Shares *self = (Shares *)object;
    PyObject *all[] = {self->offer, self->now, self->wall_ms, self->walk, self->sample, self->add, self->place_type};
    Py_VISIT(Py_TYPE(object));
    for (int i = 0; i < 7; i++) Py_VISIT(all[i]);
    Py_VISIT(self->shares);
    Py_VISIT(self->touched);
    return 0;
}

static int shares_clear(PyObject *object) {
    Shares *self = (Shares *)object;
    PyObject **all[] = {&self->offer, &self->now, &self->wall_ms, &self->walk, &self->sample, &self->add, &self->place_type,
                        &self->brokers, &self->acquire, &self->settle};
    for (int i = 0; i < 10; i++) Py_CLEAR(*all[i]);
    for (int i = 0; i < OUTCOMES; i++) Py_CLEAR(self->outcomes[i]);
    self->oldest = self->newest = NULL;
    Py_CLEAR(self->touched);
    Py_CLEAR(self->shares);
    return 0;
}

static void shares_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    shares_clear(self);
    free_object(self);
}

static Py_ssize_t shares_length(PyObject *self) { return ((Shares *)self)->held; }

static PyMethodDef shares_methods[] = {
    {"flush", shares_flush, METH_NOARGS, "Add the sums to loads and fetches."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot shares_slots[] = {
    {Py_tp_doc, "Share partitions with forwarded requests. See forwarded_shares."},
    {Py_tp_init, shares_init},
    {Py_tp_methods, shares_methods},
    {Py_tp_traverse, shares_traverse},
    {Py_tp_clear, shares_clear},
    {Py_tp_dealloc, shares_dealloc},
    {Py_sq_length, shares_length},
    {0, NULL},
};

static PyType_Spec shares_spec = {
    "kafka_share_proxy.forwarding.observed._forwarded_shares.Shares", sizeof(Shares), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, shares_slots,
};

/* Create a type and add it to the module. It is never released. */
static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, const char *name) {
    PyObject *type = PyType_FromSpec(spec);
    return type && PyModule_AddObjectRef(module, name, type) == 0 ? (PyTypeObject *)type : NULL;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kafka_share_proxy.forwarding.observed._forwarded_shares",
    .m_doc = "Audit events of share groups that the brokers serve.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__forwarded_shares(void) {
    PyObject *module = PyModule_Create(&definition);
    name_rewrite = PyUnicode_InternFromString("rewrite");
    if (!module || !name_rewrite) return NULL;
    share_type = add_type(module, &share_spec, "Share");
    request_type = add_type(module, &request_spec, "ShareRequest");
    shares_type = add_type(module, &shares_spec, "Shares");
    if (!share_type || !request_type || !shares_type || !add_type(module, &watch_spec, "Watch")) return NULL;
    return PyModule_AddIntConstant(module, "VERSION", VERSION) < 0 ? NULL : module;
}
