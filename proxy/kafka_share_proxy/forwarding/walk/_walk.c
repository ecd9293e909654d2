/* Frame boundaries in C: the same as the Python fallback walk.py.
 *
 * Why C: the cost of a forwarded request in Python is not the dozen lines of the walk. The code and data of the
 * interpreter have left the caches by the time the next request arrives. This file fits into a few lines of them.
 *
 * `receive` does not judge frames: the walk stops at any frame that cannot be forwarded, including impossible sizes. The
 * caller then inspects it in Python (ClientRequests.peek, BrokerResponses.peek). */

#define _GNU_SOURCE /* memmem */
#define PY_SSIZE_T_CLEAN
#include "layouts.h"
#include "walk.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>
#include <sys/mman.h>

#define KEYS 128
#define VERSIONS 32
enum { VERSION = 3 }; /* walking.BUILT_VERSION */
enum { FORWARDED, GATHERED, TAKEN_AT_ONCE }; /* kinds of responses below PRODUCE_MIN */
#define PENDING_MIN 4 /* first size of a ring: most connections have one request in flight */

#define WORDS 4
#define GROUPS 4 /* dicts of group ids, and objects that must be empty, see GroupMatch */

enum treatment {
    STOPS,
    PASSES,
    ACKS,
    ACKS_AND_TOPIC,
    WITHOUT_WORDS,
    WITH_KNOWN_IDS,
    OF_OTHER_GROUPS,
    REMEMBERED,
    INSPECTED
};

struct cell {
    enum treatment how;
    int response_kind;
    int absent;              /* ACKS...: the byte that means "no transactional id", see AcksMatch */
    int topics_at;           /* WITH_KNOWN_IDS: from the tags of the header to the topics */
    PyObject *expected;      /* strong; entry of the response; NULL if only `inspect` knows it */
    PyObject *known;         /* strong; of `expected`, see struct entry */
    PyObject *inspect;          /* strong; called if the match in C does not decide */
    PyObject *remembered;    /* strong; REMEMBERED: a dict, WITH_KNOWN_IDS: one whose keys are ids, else NULL */
    PyObject *words[WORDS];  /* strong; bytes; of ACKS_AND_TOPIC the first only */
    PyObject *groups[GROUPS]; /* strong; OF_OTHER_GROUPS: dicts whose keys are group ids */
    PyObject *unless[GROUPS]; /* strong; OF_OTHER_GROUPS: no request is forwarded while any of these is not empty */
    int is_flexible, is_listed, strings_before; /* OF_OTHER_GROUPS: see GroupPlace */
};

struct row {
    int versions; /* number of versions, from 0 on */
    struct cell *of; /* owned, by version */
};

struct table {
    PyObject_HEAD
    PyObject *silent;
    struct row rows[KEYS]; /* up to the last version with a treatment: most cells of a full table would be empty */
};

static PyObject *name_rewrite, *name_known, *name_kind, *name_absent, *name_prefix, *name_expected, *name_words,
    *name_ids, *name_topics_at, *name_remembered, *name_produce_version, *name_groups, *name_unless, *name_place;
static PyTypeObject *pending_type, *table_type;

static int32_t int32_at(const unsigned char *at)
{
    return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

static int int16_at(const unsigned char *at)
{
    return (int16_t)(at[0] << 8 | at[1]);
}

/* Get an attribute that may be missing. 1; 0: missing, *value is NULL; -1: exception. */
static int find_attribute(PyObject *object, PyObject *name, PyObject **value)
{
    *value = PyObject_GetAttr(object, name);
    if (*value)
        return 1;
    if (!PyErr_ExceptionMatches(PyExc_AttributeError))
        return -1;
    PyErr_Clear();
    return 0;
}

/* Return how a response is treated, and get the responses that were rewritten before, if any.
 *
 * FORWARDED: `rewrite` is None; TAKEN_AT_ONCE: `rewrite` is the name of the method that receives it (served.interfaces);
 * PRODUCE_MIN or more: a response to Produce of that version, gathered unless it is plain; else GATHERED; -1: exception. */
static int response_kind_of(PyObject *expected, PyObject **known)
{
    PyObject *rewrite = PyObject_GetAttr(expected, name_rewrite);
    *known = NULL;
    if (!rewrite)
        return -1;
    int result = rewrite == Py_None ? FORWARDED : PyUnicode_Check(rewrite) ? TAKEN_AT_ONCE : GATHERED;
    if (result && PyCallable_Check(rewrite) && find_attribute(rewrite, name_known, known) < 0)
        result = -1;
    if (*known && !PyDict_Check(*known))
        Py_CLEAR(*known);
    PyObject *version = NULL;
    if (result > 0 && !*known && PyCallable_Check(rewrite) &&
        find_attribute(rewrite, name_produce_version, &version) < 0) /* no object has both attributes */
        result = -1;
    if (version) {
        long number = PyLong_AsLong(version);
        Py_DECREF(version);
        result = number == -1 && PyErr_Occurred() ? -1 : number >= PRODUCE_MIN && number <= PRODUCE_MAX ? (int)number : GATHERED;
    }
    Py_DECREF(rewrite);
    return result;
}

#define KEPT_KEYS 16 /* a power of two */
#define KEPT_KEY_MAX (16 << 10) /* bytes of one */

/* Keys that were found, by their length: a key that repeats needs no new object, and its hash is known. */
static struct {
    PyObject *object; /* strong, or NULL */
    const char *bytes;
    Py_ssize_t length;
} kept_keys[KEPT_KEYS];

/* Return the value of these bytes, borrowed; NULL: there is none, or an exception is set. */
static PyObject *look_up(PyObject *dict, const unsigned char *bytes, Py_ssize_t length)
{
    int slot = (int)(length & (KEPT_KEYS - 1));
    if (kept_keys[slot].object && kept_keys[slot].length == length && !memcmp(kept_keys[slot].bytes, bytes, (size_t)length))
        return PyDict_GetItemWithError(dict, kept_keys[slot].object);
    PyObject *key = PyBytes_FromStringAndSize((const char *)bytes, length);
    PyObject *value = key ? PyDict_GetItemWithError(dict, key) : NULL;
    if (!value || length > KEPT_KEY_MAX) {
        Py_XDECREF(key);
        return value;
    }
    PyObject *dropped = kept_keys[slot].object;
    kept_keys[slot].object = key;
    kept_keys[slot].bytes = PyBytes_AsString(key);
    kept_keys[slot].length = length;
    Py_XDECREF(dropped);
    return value;
}

static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Pending */

static int push(Pending *self, int32_t correlation_id, PyObject *expected, int response_kind, PyObject *known)
{
    if (self->count == self->size) {
        Py_ssize_t size = self->size ? 2 * self->size : PENDING_MIN;
        struct entry *ring = PyMem_Malloc((size_t)size * sizeof *ring);
        if (!ring) {
            PyErr_NoMemory();
            return -1;
        }
        for (Py_ssize_t i = 0; i < self->count; i++)
            ring[i] = self->ring[(self->first + i) & (self->size - 1)];
        PyMem_Free(self->ring);
        self->ring = ring;
        self->size = size;
        self->first = 0;
    }
    struct entry *entry = &self->ring[(self->first + self->count++) & (self->size - 1)];
    entry->correlation_id = correlation_id;
    entry->response_kind = response_kind;
    entry->expected = Py_NewRef(expected);
    entry->known = Py_XNewRef(known);
    return 0;
}

/* Queue a request whose kind of response has to be found out first. */
static int push_new(Pending *self, int32_t correlation_id, PyObject *expected)
{
    PyObject *known;
    int response_kind = response_kind_of(expected, &known);
    int result = response_kind < 0 ? -1 : push(self, correlation_id, expected, response_kind, known);
    Py_XDECREF(known);
    return result;
}

static void drop_first(Pending *self)
{
    struct entry entry = self->ring[self->first];
    self->first = (self->first + 1) & (self->size - 1);
    self->count--;
    Py_XDECREF(entry.known);
    Py_DECREF(entry.expected);
}

static void drop_last(Pending *self)
{
    struct entry entry = self->ring[(self->first + --self->count) & (self->size - 1)];
    Py_XDECREF(entry.known);
    Py_DECREF(entry.expected);
}

static PyObject *entry_at(Pending *self, Py_ssize_t index)
{
    struct entry *entry = &self->ring[(self->first + index) & (self->size - 1)];
    return Py_BuildValue("(iO)", (int)entry->correlation_id, entry->expected);
}

static PyObject *pending_item(PyObject *object, Py_ssize_t index)
{
    Pending *self = (Pending *)object;
    if (index < 0 || index >= self->count) {
        PyErr_SetString(PyExc_IndexError, "no such request is pending");
        return NULL;
    }
    return entry_at(self, index);
}

static Py_ssize_t pending_length(PyObject *self)
{
    return ((Pending *)self)->count;
}

static PyObject *pending_append(PyObject *self, PyObject *pair)
{
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "append((correlation id, expected entry))");
        return NULL;
    }
    int overflow;
    long correlation_id = PyLong_AsLongAndOverflow(PyTuple_GetItem(pair, 0), &overflow);
    if (correlation_id == -1 && PyErr_Occurred())
        return NULL;
    if (overflow || correlation_id != (int32_t)correlation_id) {
        PyErr_SetString(PyExc_OverflowError, "a correlation id has 32 bits");
        return NULL;
    }
    if (push_new((Pending *)self, (int32_t)correlation_id, PyTuple_GetItem(pair, 1)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *pending_take(Pending *self, Py_ssize_t index)
{
    if (!self->count) {
        PyErr_SetString(PyExc_IndexError, "no request is pending");
        return NULL;
    }
    PyObject *pair = entry_at(self, index);
    if (!pair)
        return NULL;
    if (index)
        drop_last(self);
    else
        drop_first(self);
    return pair;
}

static PyObject *pending_popleft(PyObject *self, PyObject *none)
{
    (void)none;
    return pending_take((Pending *)self, 0);
}

static PyObject *pending_pop(PyObject *self, PyObject *none)
{
    (void)none;
    return pending_take((Pending *)self, ((Pending *)self)->count ? ((Pending *)self)->count - 1 : 0);
}

static int pending_empty(PyObject *object)
{
    Pending *self = (Pending *)object;
    while (self->count)
        drop_first(self);
    return 0;
}

static PyObject *pending_clear(PyObject *self, PyObject *none)
{
    (void)none;
    pending_empty(self);
    Py_RETURN_NONE;
}

static int pending_traverse(PyObject *object, visitproc visit, void *arg)
{
    Pending *self = (Pending *)object;
    Py_VISIT(Py_TYPE(object));
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_VISIT(self->ring[(self->first + i) & (self->size - 1)].expected);
        Py_VISIT(self->ring[(self->first + i) & (self->size - 1)].known);
    }
    return 0;
}

static void pending_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    pending_empty(self);
    PyMem_Free(((Pending *)self)->ring);
    free_object(self);
}

static PyMethodDef pending_methods[] = {
    {"append", pending_append, METH_O, "Queue (correlation id, expected entry)."},
    {"popleft", pending_popleft, METH_NOARGS, "Remove and return the oldest."},
    {"pop", pending_pop, METH_NOARGS, "Remove and return the newest."},
    {"clear", pending_clear, METH_NOARGS, "Remove all."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot pending_slots[] = {
    {Py_tp_doc, "Requests that wait for a response, oldest first: (correlation id, expected entry)."},
    {Py_tp_methods, pending_methods},
    {Py_tp_dealloc, pending_dealloc},
    {Py_tp_traverse, pending_traverse},
    {Py_tp_clear, pending_empty},
    {Py_sq_length, pending_length},
    {Py_sq_item, pending_item},
    {0, NULL},
};

static PyType_Spec pending_spec = {
    "kafka_share_proxy.forwarding.walk._walk.Pending", sizeof(Pending), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, pending_slots,
};

/* Table */

static struct cell *find_cell(Table *self, const unsigned char *name)
{
    int key = int16_at(name), version = int16_at(name + 2);
    if (key < 0 || key >= KEYS || version < 0 || version >= self->rows[key].versions)
        return NULL; /* outside the table: Python inspects it */
    return self->rows[key].of + version;
}

static int extend(struct row *row, int versions)
{
    struct cell *of = PyMem_Realloc(row->of, versions * sizeof *of);
    if (!of) {
        PyErr_NoMemory();
        return -1;
    }
    memset(of + row->versions, 0, (versions - row->versions) * sizeof *of);
    row->of = of;
    row->versions = versions;
    return 0;
}

/* Return the cell of a name of four bytes, and extend its row for it. NULL without an exception: there is no cell. */
static struct cell *reserve_cell(Table *self, PyObject *name)
{
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(name, &bytes, &length) < 0)
        return NULL;
    if (length != 4) {
        PyErr_SetString(PyExc_ValueError, "API key and version are four bytes");
        return NULL;
    }
    const unsigned char *at = (const unsigned char *)bytes;
    int key = int16_at(at), version = int16_at(at + 2);
    if (key < 0 || key >= KEYS || version < 0 || version >= VERSIONS)
        return NULL;
    if (version >= self->rows[key].versions && extend(&self->rows[key], version + 1) < 0)
        return NULL;
    return self->rows[key].of + version;
}

/* Replace the expected entry of a cell. -1: exception, and nothing is replaced. */
static int expect(struct cell *to, PyObject *expected)
{
    struct cell before = *to;
    Py_INCREF(expected);
    int response_kind = response_kind_of(expected, &to->known);
    if (response_kind < 0) {
        Py_DECREF(expected);
        Py_XDECREF(to->known);
        to->known = before.known;
        return -1;
    }
    to->expected = expected;
    to->response_kind = response_kind;
    Py_XDECREF(before.known);
    Py_XDECREF(before.expected);
    return 0;
}

static int fill_plain(Table *self, PyObject *plain)
{
    PyObject *name, *expected;
    Py_ssize_t position = 0;
    while (PyDict_Next(plain, &position, &name, &expected)) {
        struct cell *to = reserve_cell(self, name);
        if (PyErr_Occurred() || (to && expect(to, expected) < 0))
            return -1;
        if (to)
            to->how = PASSES;
    }
    return 0;
}

/* AcksMatch, TopicMatch: absent (None: always inspected in Python). */
static int fill_acks(struct cell *to, PyObject *absent, enum treatment how)
{
    if (absent == Py_None)
        return 0;
    to->how = how;
    to->absent = (int)PyLong_AsLong(absent);
    return PyErr_Occurred() ? -1 : 0;
}

/* WordMatch: words, a tuple of bytes. */
static int fill_words(struct cell *to, PyObject *words, enum treatment how)
{
    Py_ssize_t count = PyTuple_Size(words);
    if (count < 0)
        return -1;
    if (count > WORDS)
        return 0; /* inspected in Python */
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *word = PyTuple_GetItem(words, i);
        if (!word || !PyBytes_Check(word)) {
            PyErr_SetString(PyExc_TypeError, "words are bytes");
            return -1;
        }
        to->words[i] = Py_NewRef(word);
    }
    to->how = how;
    return 0;
}

/* TopicMatch: prefix. */
static int fill_topic(struct cell *to, PyObject *inspect, PyObject *absent)
{
    PyObject *prefix = PyObject_GetAttr(inspect, name_prefix);
    if (prefix && !PyBytes_Check(prefix)) {
        PyErr_SetString(PyExc_TypeError, "a prefix is bytes");
        Py_CLEAR(prefix);
    }
    if (!prefix)
        return -1;
    to->words[0] = prefix;
    return fill_acks(to, absent, ACKS_AND_TOPIC);
}

static int fill_dict(struct cell *to, PyObject *dict, enum treatment how)
{
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "known ids and remembered requests are dicts");
        return -1;
    }
    to->remembered = Py_NewRef(dict);
    to->how = how;
    return 0;
}

static int fill_ids(struct cell *to, PyObject *inspect, PyObject *ids)
{
    PyObject *topics_at = PyObject_GetAttr(inspect, name_topics_at);
    to->topics_at = topics_at ? (int)PyLong_AsLong(topics_at) : 0;
    Py_XDECREF(topics_at);
    return PyErr_Occurred() ? -1 : fill_dict(to, ids, WITH_KNOWN_IDS);
}

/* Fill from a tuple. 0: too many objects, inspected in Python; -1: exception. */
static int fill_tuple(PyObject **to, PyObject *tuple, int are_dicts)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    if (count < 0 || count > GROUPS)
        return count < 0 ? -1 : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *each = PyTuple_GetItem(tuple, i);
        if (!each || (are_dicts && !PyDict_Check(each))) {
            PyErr_SetString(PyExc_TypeError, "groups are dicts");
            return -1;
        }
        to[i] = Py_NewRef(each);
    }
    return 1;
}

/* GroupMatch: groups, unless, words, and place, a tuple. */
static int fill_groups(struct cell *to, PyObject *inspect, PyObject *groups)
{
    PyObject *position = PyObject_GetAttr(inspect, name_place), *unless = PyObject_GetAttr(inspect, name_unless),
             *words = PyObject_GetAttr(inspect, name_words);
    int result = -1;
    if (position && unless && words &&
        PyArg_ParseTuple(position, "ppi", &to->is_flexible, &to->is_listed, &to->strings_before)) {
        result = fill_tuple(to->groups, groups, 1);
        if (result > 0)
            result = fill_tuple(to->unless, unless, 0);
        if (result > 0)
            result = fill_words(to, words, OF_OTHER_GROUPS);
    }
    Py_XDECREF(position);
    Py_XDECREF(unless);
    Py_XDECREF(words);
    return result;
}

/* Fill a cell from the attributes that its kind of match has. */
static int fill_kind(struct cell *to, PyObject *inspect, long kind)
{
    PyObject *names[] = {
        [MATCH_ACKS] = name_absent, [MATCH_TOPIC] = name_absent, [MATCH_WORDS] = name_words,
        [MATCH_IDS] = name_ids, [MATCH_REMEMBERED] = name_remembered, [MATCH_GROUPS] = name_groups,
    };
    PyObject *condition = PyObject_GetAttr(inspect, names[kind]);
    int result = -1;
    if (condition && kind == MATCH_ACKS)
        result = fill_acks(to, condition, ACKS);
    else if (condition && kind == MATCH_TOPIC)
        result = fill_topic(to, inspect, condition);
    else if (condition && kind == MATCH_WORDS)
        result = fill_words(to, condition, WITHOUT_WORDS);
    else if (condition && kind == MATCH_IDS)
        result = fill_ids(to, inspect, condition);
    else if (condition && kind == MATCH_GROUPS)
        result = fill_groups(to, inspect, condition);
    else if (condition)
        result = fill_dict(to, condition, REMEMBERED);
    Py_XDECREF(condition);
    return result;
}

/* `kind` of a match (request_inspection.MatchKind): what is matched in C. A match without a kind is always called. */
static int fill_inspect(struct cell *to, PyObject *inspect)
{
    PyObject *number, *expected = NULL;
    to->how = INSPECTED;
    to->inspect = Py_NewRef(inspect);
    if (find_attribute(inspect, name_kind, &number) < 0)
        return -1;
    long kind = number ? PyLong_AsLong(number) : MATCH_CALLED;
    Py_XDECREF(number);
    if (kind == MATCH_CALLED)
        return 0;
    if (kind < MATCH_ACKS || kind > MATCH_GROUPS) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "no kind of match: %ld", kind);
        return -1;
    }
    if (kind != MATCH_REMEMBERED) { /* has an entry for each remembered request */
        expected = PyObject_GetAttr(inspect, name_expected);
        if (!expected || expect(to, expected) < 0) {
            Py_XDECREF(expected);
            return -1;
        }
        Py_DECREF(expected);
    }
    return fill_kind(to, inspect, kind);
}

static int fill_inspected(Table *self, PyObject *inspected)
{
    PyObject *name, *inspect;
    Py_ssize_t position = 0;
    while (PyDict_Next(inspected, &position, &name, &inspect)) {
        struct cell *to = reserve_cell(self, name);
        if (PyErr_Occurred() || (to && fill_inspect(to, inspect) < 0))
            return -1;
    }
    return 0;
}

static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *plain, *inspected, *silent;
    (void)names;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyDict_Type, &plain, &PyDict_Type, &inspected, &silent))
        return NULL;
    Table *self = (Table *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    self->silent = Py_NewRef(silent);
    if (fill_plain(self, plain) < 0 || fill_inspected(self, inspected) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int table_traverse(PyObject *object, visitproc visit, void *arg)
{
    Table *self = (Table *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->silent);
    for (struct row *row = self->rows; row < self->rows + KEYS; row++) {
        for (int version = 0; version < row->versions; version++) {
            struct cell *to = row->of + version;
            Py_VISIT(to->expected);
            Py_VISIT(to->known);
            Py_VISIT(to->inspect);
            Py_VISIT(to->remembered);
            for (int i = 0; i < GROUPS; i++) {
                Py_VISIT(to->groups[i]);
                Py_VISIT(to->unless[i]);
            }
        }
    }
    return 0;
}

static void clear_cell(struct cell *to)
{
    to->how = STOPS;
    Py_CLEAR(to->expected);
    Py_CLEAR(to->known);
    Py_CLEAR(to->inspect);
    Py_CLEAR(to->remembered);
    for (int i = 0; i < WORDS; i++)
        Py_CLEAR(to->words[i]);
    for (int i = 0; i < GROUPS; i++) {
        Py_CLEAR(to->groups[i]);
        Py_CLEAR(to->unless[i]);
    }
}

static int table_clear(PyObject *object)
{
    Table *self = (Table *)object;
    Py_CLEAR(self->silent);
    for (struct row *row = self->rows; row < self->rows + KEYS; row++) {
        for (int version = 0; version < row->versions; version++)
            clear_cell(row->of + version);
    }
    return 0;
}

static void table_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    table_clear(self);
    for (int key = 0; key < KEYS; key++)
        PyMem_Free(((Table *)self)->rows[key].of);
    free_object(self);
}

static PyType_Slot table_slots[] = {
    {Py_tp_doc, "Table(plain, inspected, silent): requests that can be forwarded, by API key and version. See walk.Table."},
    {Py_tp_new, table_new},
    {Py_tp_dealloc, table_dealloc},
    {Py_tp_traverse, table_traverse},
    {Py_tp_clear, table_clear},
    {0, NULL},
};

static PyType_Spec table_spec = {
    "kafka_share_proxy.forwarding.walk._walk.Table", sizeof(Table), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, table_slots,
};

/* Walks */

/* Inspect the request at `at` in Python. Return its expected entry, a new reference; NULL without an exception: the walk
 * stops here. */
static PyObject *call_inspect(PyObject *inspect, PyObject *view, Py_ssize_t at, Py_ssize_t end, Py_ssize_t frame_end)
{
    PyObject *expected = PyObject_CallFunction(inspect, "Onnn", view, at, end < frame_end ? end : frame_end, frame_end);
    if (expected == Py_None)
        Py_CLEAR(expected);
    return expected;
}

/* Read the acks of a Produce without a transactional id. Return the position after them; 0: it has another form. */
static Py_ssize_t acks_without_transaction(const unsigned char *buffer, Py_ssize_t at, Py_ssize_t end, int absent, int *acks)
{
    if (at + CLIENT_ID + 4 > end)
        return 0;
    int client_id = int16_at(buffer + at + REQUEST_HEAD);
    if (client_id < -1)
        return 0;
    Py_ssize_t after_client_id = at + CLIENT_ID + (client_id > 0 ? client_id : 0);
    if (after_client_id + 4 > end || buffer[after_client_id] != absent || buffer[after_client_id + 1] != absent)
        return 0;
    *acks = int16_at(buffer + after_client_id + 2);
    return after_client_id + 4;
}

/* True if a Produce has one topic, its name was received, and it has no prefix of views; `at`: after the acks. */
static int is_to_another_topic(const struct cell *to, const unsigned char *frame, Py_ssize_t at, Py_ssize_t end)
{
    char *prefix;
    Py_ssize_t length, prefix_length;
    at += AFTER_ACKS;
    if (to->absent) { /* the count has four bytes, the length two */
        if (at + 6 > end || int32_at(frame + at) != 1)
            return 0;
        length = int16_at(frame + at + 4);
        at += 6;
    } else { /* both are varints, encoded plus one */
        if (at + 2 > end || frame[at] != 2 || frame[at + 1] > 127)
            return 0;
        length = frame[at + 1] - 1;
        at += 2;
    }
    if (length < 0 || length > end - at)
        return 0;
    if (PyBytes_AsStringAndSize(to->words[0], &prefix, &prefix_length) < 0)
        return -1;
    return length < prefix_length || memcmp(frame + at, prefix, (size_t)prefix_length) != 0;
}

#define SHORT_WORD 4 /* memchr for its last byte, which should be rare, is faster than memmem */

/* True if the bytes contain a word. */
static int has_word(const unsigned char *from, size_t bytes, const char *word, size_t length)
{
    if (length > SHORT_WORD || !length || bytes < length)
        return memmem(from, bytes, word, length) != NULL;
    const unsigned char *at = from + length - 1, *end = from + bytes;
    while ((at = memchr(at, (unsigned char)word[length - 1], (size_t)(end - at)))) {
        if (!memcmp(at - (length - 1), word, length - 1))
            return 1;
        if (++at == end)
            return 0;
    }
    return 0;
}

/* True if the bytes contain none of the words. */
static int lacks_words(const struct cell *to, const unsigned char *from, size_t bytes)
{
    for (int i = 0; i < WORDS && to->words[i]; i++) {
        char *word;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(to->words[i], &word, &length) < 0)
            return -1;
        if (has_word(from, bytes, word, (size_t)length))
            return 0;
    }
    return 1;
}

/* Read the count of a compact array at *at, and move *at after it; -1: null, -2: not a count. */
static long array_at(const unsigned char *frame, Py_ssize_t end, Py_ssize_t *at)
{
    unsigned long value = 0;
    for (int shift = 0; shift < 28; shift += 7) {
        if (*at >= end)
            return -2;
        unsigned char byte = frame[(*at)++];
        value |= (unsigned long)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return (long)value - 1;
    }
    return -2;
}

/* Fetch from v13 on: true if each topic id is known and there are no tags. -1: exception. */
static int names_known_ids(const struct cell *to, const unsigned char *frame, Py_ssize_t end)
{
    if (end <= CLIENT_ID)
        return 0;
    int client_id = int16_at(frame + REQUEST_HEAD);
    Py_ssize_t at = CLIENT_ID + (client_id > 0 ? client_id : 0);
    if (at >= end || frame[at])
        return 0; /* tags in the header */
    at += to->topics_at;
    long topics = array_at(frame, end, &at);
    if (topics < 0)
        return 0;
    for (long i = 0; i < topics; i++) {
        if (at + UUID > end)
            return 0;
        PyObject *id = PyBytes_FromStringAndSize((const char *)frame + at, UUID);
        PyObject *known = id ? PyDict_GetItemWithError(to->remembered, id) : NULL;
        Py_XDECREF(id);
        if (!known)
            return PyErr_Occurred() ? -1 : 0;
        at += UUID;
        long partitions = array_at(frame, end, &at);
        if (partitions < 0 || partitions > (end - at) / FETCH_PARTITION)
            return 0;
        for (long j = 0; j < partitions; j++, at += FETCH_PARTITION)
            if (frame[at + FETCH_PARTITION - 1])
                return 0;
        if (at >= end || frame[at++])
            return 0;
    }
    return 1;
}

/* Read the length of a string at *at, and move *at to its first byte; -1: null; -2: the string is incomplete. */
static long string_at(const struct cell *to, const unsigned char *frame, Py_ssize_t end, Py_ssize_t *at)
{
    long length;
    if (to->is_flexible) {
        length = array_at(frame, end, at);
    } else {
        if (*at + 2 > end)
            return -2;
        length = int16_at(frame + *at);
        *at += 2;
    }
    return length > end - *at ? -2 : length < -1 ? -1 : length;
}

#define GROUP_REMEMBERED_MAX 256 /* longer ids are not cached: clients may send 32 KiB */

/* Return the group id in these bytes, as a new reference. If it equals the one of the last request, as on most
 * connections, return that object, because its hash is known. NULL: the bytes are not UTF-8, or there is an exception. */
static PyObject *group_id(Walk *self, const char *bytes, Py_ssize_t length)
{
    Py_ssize_t last_length;
    const char *last = self->group ? PyUnicode_AsUTF8AndSize(self->group, &last_length) : NULL;
    if (last && last_length == length && !memcmp(last, bytes, (size_t)length)) {
        Py_INCREF(self->group);
        return self->group;
    }
    PyObject *group = PyUnicode_DecodeUTF8(bytes, length, NULL);
    if (!group && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
    if (group && length <= GROUP_REMEMBERED_MAX) {
        Py_XDECREF(self->group);
        Py_INCREF(group);
        self->group = group;
    }
    return group;
}

/* Return the group id of a request, as a new reference; NULL: it has an unusual form, or there is an exception. */
static PyObject *leading_group(Walk *self, const struct cell *to, const unsigned char *frame, Py_ssize_t end)
{
    if (end < 14)
        return NULL;
    int client_id = int16_at(frame + 12);
    Py_ssize_t at = 14 + (client_id > 0 ? client_id : 0);
    if (to->is_flexible && (at >= end || frame[at++]))
        return NULL; /* tags in the header */
    if (to->is_listed && array_at(frame, end, &at) != 1)
        return NULL;
    for (int i = 0; i < to->strings_before; i++) {
        long length = string_at(to, frame, end, &at);
        if (length < -1)
            return NULL;
        at += length > 0 ? length : 0;
    }
    long length = string_at(to, frame, end, &at);
    return length < 0 ? NULL : group_id(self, (const char *)frame + at, length);
}

/* Return the sum of their lengths; -1: exception. */
static Py_ssize_t size_of_all(PyObject *const *objects)
{
    Py_ssize_t total = 0;
    for (int i = 0; i < GROUPS && objects[i]; i++) {
        Py_ssize_t size = PyObject_Size(objects[i]);
        if (size < 0)
            return -1;
        total += size;
    }
    return total;
}

#define INSPECTIONS_MAX 16 /* walk.INSPECTIONS_MAX; here only calls of Python count */
#define HAS_MATCH 2 /* result of `match_request`: the walk stops, and the request is inspected when it is gathered */

/* 1: the group of the request is unknown, and the request contains none of the words; HAS_MATCH: the group is known, or a
 * word was found; 0: Python has to inspect the request; -1: exception. */
static int is_of_other_group(Walk *self, const struct cell *to, const unsigned char *frame, Py_ssize_t end)
{
    Py_ssize_t unless = size_of_all(to->unless), known = size_of_all(to->groups);
    if (unless || known < 0)
        return unless < 0 || known < 0 ? -1 : 0;
    int passes = lacks_words(to, frame + 4, (size_t)(end - 4));
    if (passes < 0)
        return -1;
    if (!passes)
        return HAS_MATCH;
    if (!known)
        return 1;
    PyObject *group = leading_group(self, to, frame, end);
    if (!group)
        return PyErr_Occurred() ? -1 : 0;
    for (int i = 0; i < GROUPS && to->groups[i] && passes == 1; i++) {
        int is_known = PyDict_Contains(to->groups[i], group);
        passes = is_known < 0 ? -1 : is_known ? HAS_MATCH : 1;
    }
    Py_DECREF(group);
    return passes;
}

/* Queue the entry of an earlier request with the same bytes. 1: queued; 0: the bytes are new; -1: exception. */
static int push_remembered(
    Walk *self, struct cell *to, const unsigned char *frame, Py_ssize_t bytes, int32_t correlation_id)
{
    if (bytes - REQUEST_HEAD > REMEMBERED_MAX)
        return 0;
    PyObject *expected = look_up(to->remembered, frame + REQUEST_HEAD, bytes - REQUEST_HEAD);
    if (!expected)
        return PyErr_Occurred() ? -1 : 0;
    if (expected != to->expected && expect(to, expected) < 0)
        return -1;
    return push(self->pending, correlation_id, to->expected, to->response_kind, to->known) < 0 ? -1 : 1;
}

/* As `admit`, by the bytes of the request alone; 0: Python has to inspect it; HAS_MATCH: the walk stops. */
static int match_request(
    Walk *self, struct cell *to, const unsigned char *frame, Py_ssize_t received, Py_ssize_t size,
    int32_t correlation_id)
{
    int acks, passes = 0;
    if (to->how == ACKS || to->how == ACKS_AND_TOPIC) {
        Py_ssize_t after_acks = acks_without_transaction(frame, 0, received, to->absent, &acks);
        if (!after_acks)
            return 0;
        if (to->how == ACKS_AND_TOPIC && (passes = is_to_another_topic(to, frame, after_acks, received)) <= 0)
            return passes;
        if (!acks)
            return 1; /* there is no response */
        passes = 1;
    } else if (received < size) {
        return 0;
    } else if (to->how == REMEMBERED) {
        return push_remembered(self, to, frame, size, correlation_id);
    } else if (to->how == WITHOUT_WORDS) {
        passes = lacks_words(to, frame, (size_t)size);
    } else if (to->how == WITH_KNOWN_IDS) {
        passes = names_known_ids(to, frame, size);
    } else if (to->how == OF_OTHER_GROUPS) {
        passes = is_of_other_group(self, to, frame, size);
    }
    if (passes != 1)
        return passes;
    return push(self->pending, correlation_id, to->expected, to->response_kind, to->known) < 0 ? -1 : 1;
}

/* 1: the request is forwarded, and its expected entry is queued; 0: the walk stops before it; -1: exception. */
static int admit(Walk *self, const unsigned char *buffer, PyObject *view, Py_ssize_t at, Py_ssize_t end, int size)
{
    struct cell *to = find_cell(self->table, buffer + at + 4);
    int32_t correlation_id = int32_at(buffer + at + 8);
    Py_ssize_t frame_end = at + 4 + size, received_end = end < frame_end ? end : frame_end;
    if (!to || to->how == STOPS)
        return 0;
    if (to->how == PASSES)
        return push(self->pending, correlation_id, to->expected, to->response_kind, to->known) < 0 ? -1 : 1;
    int settled = match_request(self, to, buffer + at, received_end - at, frame_end - at, correlation_id);
    if (settled)
        return settled == HAS_MATCH ? 0 : settled;
    if (++self->inspections > INSPECTIONS_MAX)
        return 0;
    PyObject *expected = call_inspect(to->inspect, view, at, end, frame_end);
    if (!expected)
        return PyErr_Occurred() ? -1 : 0;
    int result = expected == self->table->silent || push_new(self->pending, correlation_id, expected) == 0 ? 1 : -1;
    Py_DECREF(expected);
    return result;
}

/* True if a response to Produce has no node endpoints and nothing else unusual. It is forwarded then. */
static int is_plain_produce(const unsigned char *frame, Py_ssize_t end, int version)
{
    Py_ssize_t at = RESPONSE_HEAD + 1;
    if (end <= at || frame[RESPONSE_HEAD])
        return 0; /* tags in the header */
    long topics = array_at(frame, end, &at);
    for (long i = 0; i < topics; i++) {
        /* a compact string has its length as an array */
        long name = version >= PRODUCED_IDS_SINCE ? UUID : array_at(frame, end, &at);
        if (name < 0 || name > end - at)
            return 0;
        at += name;
        long partitions = array_at(frame, end, &at);
        if (partitions < 0 || partitions > (end - at) / PRODUCED_PARTITION)
            return 0;
        for (long j = 0; j < partitions; j++, at += PRODUCED_PARTITION)
            if (memcmp(frame + at + PRODUCED_ERRORS, PRODUCED_NOTHING, PRODUCED_NOTHING_BYTES))
                return 0;
        if (at >= end || frame[at++])
            return 0;
    }
    return topics >= 0 && at + PRODUCED_END == end && !frame[at + PRODUCED_END - 1];
}

/* True if the response at `at`, of `size` bytes, has to be gathered. */
static int is_gathered(const struct entry *entry, const unsigned char *buffer, Py_ssize_t at, Py_ssize_t end, int size)
{
    if (entry->response_kind < PRODUCE_MIN)
        return entry->response_kind;
    return at + 4 + size > end || !is_plain_produce(buffer + at, 4 + (Py_ssize_t)size, entry->response_kind);
}

static Py_ssize_t rest(Walk *self, Py_ssize_t at, Py_ssize_t end)
{
    self->missing = at >= end ? at - end : 0;
    return at >= end ? end : at;
}

static Py_ssize_t receive_requests(
    Walk *self, const unsigned char *buffer, PyObject *view, Py_ssize_t start, Py_ssize_t end)
{
    Py_ssize_t at = start + (Py_ssize_t)self->missing;
    self->inspections = 0;
    while (at + REQUEST_HEAD <= end) {
        int size = int32_at(buffer + at);
        if (size < REQUEST_MIN || size > self->frame_max)
            break;
        int passes = admit(self, buffer, view, at, end, size);
        if (passes < 0)
            return -1;
        if (!passes)
            break;
        at += (Py_ssize_t)size + 4;
    }
    return rest(self, at, end);
}

static Py_ssize_t receive_responses(Walk *self, const unsigned char *buffer, Py_ssize_t start, Py_ssize_t end)
{
    Py_ssize_t at = start + (Py_ssize_t)self->missing;
    Pending *pending = self->pending;
    while (at + RESPONSE_HEAD <= end && pending->count) {
        int size = int32_at(buffer + at);
        struct entry *next = &pending->ring[pending->first];
        if (next->correlation_id != int32_at(buffer + at + 4) || size < RESPONSE_MIN || size > self->frame_max ||
            is_gathered(next, buffer, at, end, size))
            break;
        drop_first(pending);
        at += (Py_ssize_t)size + 4;
    }
    return rest(self, at, end);
}

static Py_ssize_t receive(Walk *self, const unsigned char *buffer, PyObject *view, Py_ssize_t start, Py_ssize_t end)
{
    return self->table ? receive_requests(self, buffer, view, start, end) : receive_responses(self, buffer, start, end);
}

static int recall(Walk *self, const unsigned char *buffer, Py_ssize_t end, Py_ssize_t most, struct rewritten *response)
{
    Pending *pending = self->pending;
    if (self->table || self->missing || end < RESPONSE_HEAD || !pending->count || int32_at(buffer) != end - 4)
        return 0;
    struct entry *next = &pending->ring[pending->first];
    if (!next->known || next->correlation_id != int32_at(buffer + 4))
        return 0;
    PyObject *cached = look_up(next->known, buffer + RESPONSE_HEAD, end - RESPONSE_HEAD);
    if (!cached)
        return PyErr_Occurred() ? -1 : 0;
    char *response_size, *response_rest;
    Py_ssize_t response_size_bytes;
    if (!PyTuple_Check(cached) || PyTuple_Size(cached) != 2 ||
        PyBytes_AsStringAndSize(PyTuple_GetItem(cached, 0), &response_size, &response_size_bytes) < 0 ||
        PyBytes_AsStringAndSize(PyTuple_GetItem(cached, 1), &response_rest, &response->rest_bytes) < 0)
        return PyErr_Occurred() ? -1 : 0;
    if (response->rest_bytes + RESPONSE_HEAD > most)
        return 0;
    response->owner = Py_NewRef(cached);
    response->size = response_size_bytes == 4 ? response_size : NULL;
    response->rest = response_rest;
    drop_first(pending);
    return 1;
}

static PyObject *take_expected(Walk *self, const unsigned char *buffer, Py_ssize_t end)
{
    Pending *pending = self->pending;
    if (self->table || self->missing || end < RESPONSE_HEAD || !pending->count || int32_at(buffer) != end - 4)
        return NULL;
    struct entry *next = &pending->ring[pending->first];
    if (next->response_kind != TAKEN_AT_ONCE || next->correlation_id != int32_at(buffer + 4))
        return NULL;
    PyObject *expected = Py_NewRef(next->expected);
    drop_first(pending);
    return expected;
}

static PyObject *walk_receive(PyObject *self, PyObject *args)
{
    PyObject *view;
    Py_ssize_t start, end;
    Py_buffer buffer;
    if (!PyArg_ParseTuple(args, "Onn", &view, &start, &end) || PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_ssize_t upto = -1;
    if (start < 0 || end < start || end > buffer.len)
        PyErr_Format(PyExc_ValueError, "no range of %zd bytes: %zd to %zd", buffer.len, start, end);
    else
        upto = receive((Walk *)self, buffer.buf, view, start, end);
    PyBuffer_Release(&buffer);
    return upto < 0 ? NULL : PyLong_FromSsize_t(upto);
}

static PyObject *walk_use(PyObject *self, PyObject *table)
{
    if (!PyObject_TypeCheck(table, table_type)) {
        PyErr_SetString(PyExc_TypeError, "use() takes a Table");
        return NULL;
    }
    Table *previous = ((Walk *)self)->table;
    ((Walk *)self)->table = (Table *)Py_NewRef(table);
    Py_XDECREF((PyObject *)previous);
    Py_RETURN_NONE;
}

static int begin(Walk *self, PyObject *pending, PyObject *table, int frame_max)
{
    Pending *previous_pending = self->pending;
    self->pending = (Pending *)Py_NewRef(pending);
    Py_XDECREF((PyObject *)previous_pending);
    Table *previous_table = self->table;
    self->table = (Table *)Py_XNewRef(table);
    Py_XDECREF((PyObject *)previous_table);
    self->frame_max = frame_max;
    self->in_flight_max = INT_MAX;
    return 0;
}

static int requests_init(PyObject *self, PyObject *args, PyObject *names)
{
    PyObject *pending, *table;
    int frame_max;
    (void)names;
    if (!PyArg_ParseTuple(args, "O!O!i", pending_type, &pending, table_type, &table, &frame_max))
        return -1;
    return begin((Walk *)self, pending, table, frame_max);
}

static int responses_init(PyObject *self, PyObject *args, PyObject *names)
{
    PyObject *pending;
    int frame_max;
    (void)names;
    if (!PyArg_ParseTuple(args, "O!i", pending_type, &pending, &frame_max))
        return -1;
    return begin((Walk *)self, pending, NULL, frame_max);
}

static int walk_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Walk *)self)->pending);
    Py_VISIT(((Walk *)self)->table);
    return 0;
}

static int walk_clear(PyObject *self)
{
    (void)self; /* references to a connection are in the ring, and its clear breaks them */
    return 0;
}

static void walk_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_CLEAR(((Walk *)self)->pending);
    Py_CLEAR(((Walk *)self)->table);
    Py_CLEAR(((Walk *)self)->group);
    free_object(self);
}

static PyMemberDef walk_members[] = {
    {"pending", T_OBJECT_EX, offsetof(Walk, pending), READONLY, "Requests that wait for a response."},
    {"missing", T_LONGLONG, offsetof(Walk, missing), 0, "Bytes of a forwarded frame that are not received yet."},
    {"bytes", T_LONGLONG, offsetof(Walk, bytes), 0, "Bytes forwarded so far."},
    {"flows", T_BOOL, offsetof(Walk, flows), 0, "True if the fast path may be used."},
    {"quiet_s", T_INT, offsetof(Walk, quiet_s), 0, "Sweeps (seconds) since the last byte."},
    {"in_flight_max", T_INT, offsetof(Walk, in_flight_max), 0, "Maximum number of pending requests before reading pauses."},
    {"frame_max", T_INT, offsetof(Walk, frame_max), READONLY, "Maximum size of a frame."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef requests_methods[] = {
    {"receive", walk_receive, METH_VARARGS, "receive(buffer, start, end): see walk.RequestWalk."},
    {"use", walk_use, METH_O, "Use this table from the next frame on."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef responses_methods[] = {
    {"receive", walk_receive, METH_VARARGS, "receive(buffer, start, end): see walk.ResponseWalk."},
    {NULL, NULL, 0, NULL},
};

#define WALK_SLOTS(initialise, methods, text)                                                                          \
    {                                                                                                                  \
        {Py_tp_doc, text}, {Py_tp_init, initialise}, {Py_tp_methods, methods}, {Py_tp_members, walk_members},          \
            {Py_tp_dealloc, walk_dealloc}, {Py_tp_traverse, walk_traverse}, {Py_tp_clear, walk_clear}, {0, NULL},      \
    }

static PyType_Slot requests_slots[] =
    WALK_SLOTS(requests_init, requests_methods, "RequestWalk(pending, table, frame_max). See walk.RequestWalk.");
static PyType_Slot responses_slots[] =
    WALK_SLOTS(responses_init, responses_methods, "ResponseWalk(pending, frame_max). See walk.ResponseWalk.");

#define WALK_FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE)

static PyType_Spec requests_spec = {"kafka_share_proxy.forwarding.walk._walk.RequestWalk", sizeof(Walk), 0, WALK_FLAGS, requests_slots};
static PyType_Spec responses_spec = {"kafka_share_proxy.forwarding.walk._walk.ResponseWalk", sizeof(Walk), 0, WALK_FLAGS, responses_slots};

static struct walk_functions functions = {NULL, NULL, receive, recall, take_expected};

/* Rooms: memory into which frames of megabytes are read. Released large rooms are kept and reused: their pages are mapped
 * already, and parts of them are still in the caches. */

#define ROOM_BYTES ((4 << 20) + (64 << 10)) /* gathering.PRESIZED_MAX */
#define ROOM_MIN (3 << 20) /* smaller frames do not occupy that much memory */
#define ROOMS_KEPT 4
#define HUGE_PAGE (2 << 20)

typedef struct {
    PyObject_HEAD
    void *bytes;
} Room;

static PyTypeObject *room_type;
static void *rooms[ROOMS_KEPT]; /* not in use */
static int rooms_kept;

static void *take_room(void)
{
    if (rooms_kept)
        return rooms[--rooms_kept];
    void *bytes;
    if (posix_memalign(&bytes, HUGE_PAGE, ROOM_BYTES))
        return NULL;
#ifdef MADV_HUGEPAGE
    (void)madvise(bytes, ROOM_BYTES / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* only a hint */
#endif
    return bytes;
}

static void room_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    void *bytes = ((Room *)self)->bytes;
    if (bytes && rooms_kept < ROOMS_KEPT)
        rooms[rooms_kept++] = bytes;
    else
        free(bytes);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int room_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, self, ((Room *)self)->bytes, ROOM_BYTES, 0, flags);
}

static PyType_Slot room_slots[] = {
    {Py_tp_dealloc, room_dealloc},
    {Py_bf_getbuffer, room_getbuffer},
    {0, NULL},
};

static PyType_Spec room_spec = {
    "kafka_share_proxy.forwarding.walk._walk.Room", sizeof(Room), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, room_slots,
};

static PyObject *new_room(Py_ssize_t size)
{
    if (size > ROOM_BYTES || size < ROOM_MIN)
        return PyByteArray_FromStringAndSize(NULL, size);
    Room *room = PyObject_New(Room, room_type);
    if (!room)
        return NULL;
    room->bytes = take_room();
    if (!room->bytes) {
        Py_DECREF(room);
        return PyErr_NoMemory();
    }
    return (PyObject *)room;
}

static PyObject *give_room(PyObject *module, PyObject *number)
{
    (void)module;
    Py_ssize_t size = PyNumber_AsSsize_t(number, PyExc_OverflowError);
    if (size == -1 && PyErr_Occurred())
        return NULL;
    if (size < 0)
        return PyErr_Format(PyExc_ValueError, "a size of %zd", size);
    PyObject *room = new_room(size);
    PyObject *room_view = room ? PyMemoryView_FromObject(room) : NULL;
    Py_XDECREF(room);
    PyObject *view = room_view ? PySequence_GetSlice(room_view, 0, size) : NULL;
    Py_XDECREF(room_view);
    return view;
}

static PyMethodDef module_methods[] = {
    {"room", give_room, METH_O, "room(size). See walk.room."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "kafka_share_proxy.forwarding.walk._walk", "Frame boundaries in C. See walk.", -1, module_methods,
    NULL,                  NULL,               NULL,                               NULL,
};

/* Create a type and add it to the module. Return a borrowed reference that the module keeps alive. */
static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromSpec(spec);
    if (!type || PyModule_AddObjectRef(module, name, type) < 0)
        return NULL;
    return (PyTypeObject *)type; /* never released: other modules use it through the capsule */
}

PyMODINIT_FUNC PyInit__walk(void)
{
    PyObject *module = PyModule_Create(&definition);
    name_rewrite = PyUnicode_InternFromString("rewrite");
    name_known = PyUnicode_InternFromString("known");
    name_kind = PyUnicode_InternFromString("kind");
    name_absent = PyUnicode_InternFromString("absent");
    name_prefix = PyUnicode_InternFromString("prefix");
    name_expected = PyUnicode_InternFromString("expected");
    name_words = PyUnicode_InternFromString("words");
    name_ids = PyUnicode_InternFromString("ids");
    name_topics_at = PyUnicode_InternFromString("topics_at");
    name_remembered = PyUnicode_InternFromString("remembered");
    name_produce_version = PyUnicode_InternFromString("produce_version");
    name_groups = PyUnicode_InternFromString("groups");
    name_unless = PyUnicode_InternFromString("unless");
    name_place = PyUnicode_InternFromString("place");
    if (!module || !name_rewrite || !name_known || !name_kind || !name_absent || !name_prefix || !name_expected || !name_words || !name_ids ||
        !name_topics_at || !name_remembered || !name_produce_version || !name_groups || !name_unless || !name_place)
        return NULL;
    pending_type = add_type(module, &pending_spec, "Pending");
    table_type = add_type(module, &table_spec, "Table");
    functions.requests = add_type(module, &requests_spec, "RequestWalk");
    functions.responses = add_type(module, &responses_spec, "ResponseWalk");
    room_type = add_type(module, &room_spec, "Room");
    PyObject *capsule = PyCapsule_New(&functions, WALK_CAPSULE, NULL);
    if (!pending_type || !table_type || !functions.requests || !functions.responses || !room_type || !capsule ||
        PyModule_AddObjectRef(module, "functions", capsule) < 0 || PyModule_AddIntConstant(module, "VERSION", VERSION) < 0)
        return NULL;
    Py_DECREF(capsule);
    return module;
}
