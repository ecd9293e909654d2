/* Frame boundaries in C: the same as walk.py, which is used where this could not be built.
 *
 * Why C: what a forwarded request costs in Python is not the dozen lines of the walk but that the interpreter's code
 * and data have left the caches by the time the next request comes. This fits into a few lines of them.
 *
 * `receive` judges nothing: whatever does not simply pass, an impossible size included, ends the walk, and the caller
 * asks in Python (ClientRequests.peek, BrokerResponses.peek) what stands there. */

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
enum { VERSION = 1 }; /* walking.BUILT_VERSION */
#define PENDING_MIN 4 /* a ring begins so small, for most connections have one request in flight */

#define WORDS 4
#define GROUPS 4 /* dicts of group ids, and what has to be empty, see GroupMatch */

enum treatment {
    STOPS,
    PASSES,
    ACKS,
    ACKS_AND_TOPIC,
    WITHOUT_WORDS,
    WITH_KNOWN_IDS,
    OF_OTHER_GROUPS,
    REMEMBERED,
    LOOKS
};

struct treated {
    enum treatment how;
    int gathers;
    int absent;              /* ACKS...: the byte that stands for "no transactional id", see AcksMatch */
    int topics_at;           /* WITH_KNOWN_IDS: from the tags of the header to the topics */
    PyObject *expected;      /* strong; what the answer is for; NULL where only `look` knows */
    PyObject *known;         /* strong; of `expected`, see struct entry */
    PyObject *look;          /* strong; asked wherever what is looked for in C does not settle it */
    PyObject *remembered;    /* strong; REMEMBERED: a dict, WITH_KNOWN_IDS: one whose keys are ids, else NULL */
    PyObject *words[WORDS];  /* strong; bytes; of ACKS_AND_TOPIC the first only */
    PyObject *groups[GROUPS]; /* strong; OF_OTHER_GROUPS: dicts whose keys are group ids */
    PyObject *unless[GROUPS]; /* strong; OF_OTHER_GROUPS: none passes while any of these has something in it */
    int is_flexible, is_listed, strings_before; /* OF_OTHER_GROUPS: see GroupPlace */
};

struct row {
    int versions; /* how many there are, from 0 on */
    struct treated *of; /* owned, by version */
};

struct table {
    PyObject_HEAD
    PyObject *silent;
    struct row rows[KEYS]; /* each with the versions that have a treatment: most cells of all would be empty */
};

static PyObject *word_rewrite, *word_known, *word_kind, *word_absent, *word_prefix, *word_expected, *word_words,
    *word_ids, *word_topics_at, *word_remembered, *word_produce_version, *word_groups, *word_unless, *word_place;
static PyTypeObject *pending_type, *table_type;

static int32_t int32_at(const unsigned char *at)
{
    return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

static int int16_at(const unsigned char *at)
{
    return (int16_t)(at[0] << 8 | at[1]);
}

/* An attribute that may be missing: 1, or 0 and *found is NULL, or -1 with an exception. */
static int find_attribute(PyObject *object, PyObject *name, PyObject **found)
{
    *found = PyObject_GetAttr(object, name);
    if (*found)
        return 1;
    if (!PyErr_ExceptionMatches(PyExc_AttributeError))
        return -1;
    PyErr_Clear();
    return 0;
}

/* Whether an answer is gathered: its `rewrite` is not None; what that knows already, if anything. -1: exception.
 *
 * 0: it passes; PRODUCE_MIN or more: an answer to Produce of that version, gathered unless it is a plain one; 1: else. */
static int gathers(PyObject *expected, PyObject **known)
{
    PyObject *rewrite = PyObject_GetAttr(expected, word_rewrite);
    *known = NULL;
    if (!rewrite)
        return -1;
    int result = rewrite != Py_None;
    if (result && PyCallable_Check(rewrite) && find_attribute(rewrite, word_known, known) < 0)
        result = -1;
    if (*known && !PyDict_Check(*known))
        Py_CLEAR(*known);
    PyObject *version = NULL;
    if (result > 0 && !*known && PyCallable_Check(rewrite) &&
        find_attribute(rewrite, word_produce_version, &version) < 0) /* who has the one has not the other */
        result = -1;
    if (version) {
        long number = PyLong_AsLong(version);
        Py_DECREF(version);
        result = number == -1 && PyErr_Occurred() ? -1 : number >= PRODUCE_MIN && number <= PRODUCE_MAX ? (int)number : 1;
    }
    Py_DECREF(rewrite);
    return result;
}

static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Pending */

static int push(Pending *self, int32_t correlation_id, PyObject *expected, int gathers_it, PyObject *known)
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
    entry->gathers = gathers_it;
    entry->expected = Py_NewRef(expected);
    entry->known = Py_XNewRef(known);
    return 0;
}

/* The same for what nothing is known of yet. */
static int push_new(Pending *self, int32_t correlation_id, PyObject *expected)
{
    PyObject *known;
    int gathers_it = gathers(expected, &known);
    int result = gathers_it < 0 ? -1 : push(self, correlation_id, expected, gathers_it, known);
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
        PyErr_SetString(PyExc_IndexError, "no such request waits");
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
    int correlation_id;
    PyObject *expected;
    if (!PyArg_ParseTuple(pair, "iO", &correlation_id, &expected) ||
        push_new((Pending *)self, correlation_id, expected) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *pending_take(Pending *self, Py_ssize_t index)
{
    if (!self->count) {
        PyErr_SetString(PyExc_IndexError, "no request waits");
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
    {"append", pending_append, METH_O, "Queue (correlation id, what is expected)."},
    {"popleft", pending_popleft, METH_NOARGS, "Take the oldest off."},
    {"pop", pending_pop, METH_NOARGS, "Take the newest off."},
    {"clear", pending_clear, METH_NOARGS, "Forget all."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot pending_slots[] = {
    {Py_tp_doc, "Requests that wait for their answer, oldest first: (correlation id, what is expected)."},
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

static struct treated *place(Table *self, const unsigned char *name)
{
    int key = int16_at(name), version = int16_at(name + 2);
    if (key < 0 || key >= KEYS || version < 0 || version >= self->rows[key].versions)
        return NULL; /* what lies outside does not pass by itself: Python looks it up */
    return self->rows[key].of + version;
}

static int extend(struct row *row, int versions)
{
    struct treated *of = PyMem_Realloc(row->of, versions * sizeof *of);
    if (!of) {
        PyErr_NoMemory();
        return -1;
    }
    memset(of + row->versions, 0, (versions - row->versions) * sizeof *of);
    row->of = of;
    row->versions = versions;
    return 0;
}

/* The cell of a name of four bytes, in a row that is extended for it; NULL without an exception: it has none. */
static struct treated *cell(Table *self, PyObject *name)
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

/* Replace what `to` expects, if anything. -1: exception, and nothing is replaced. */
static int expect(struct treated *to, PyObject *expected)
{
    struct treated before = *to;
    Py_INCREF(expected);
    int gathers_it = gathers(expected, &to->known);
    if (gathers_it < 0) {
        Py_DECREF(expected);
        Py_XDECREF(to->known);
        to->known = before.known;
        return -1;
    }
    to->expected = expected;
    to->gathers = gathers_it;
    Py_XDECREF(before.known);
    Py_XDECREF(before.expected);
    return 0;
}

static int fill_plain(Table *self, PyObject *plain)
{
    PyObject *name, *expected;
    Py_ssize_t position = 0;
    while (PyDict_Next(plain, &position, &name, &expected)) {
        struct treated *to = cell(self, name);
        if (PyErr_Occurred() || (to && expect(to, expected) < 0))
            return -1;
        if (to)
            to->how = PASSES;
    }
    return 0;
}

/* AcksMatch, TopicMatch: absent (None: always asked in Python). */
static int fill_acks(struct treated *to, PyObject *absent, enum treatment how)
{
    if (absent == Py_None)
        return 0;
    to->how = how;
    to->absent = (int)PyLong_AsLong(absent);
    return PyErr_Occurred() ? -1 : 0;
}

/* WordMatch: words, a tuple of bytes. */
static int fill_words(struct treated *to, PyObject *words, enum treatment how)
{
    Py_ssize_t count = PyTuple_Size(words);
    if (count < 0)
        return -1;
    if (count > WORDS)
        return 0; /* called */
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
static int fill_topic(struct treated *to, PyObject *look, PyObject *absent)
{
    PyObject *prefix = PyObject_GetAttr(look, word_prefix);
    if (prefix && !PyBytes_Check(prefix)) {
        PyErr_SetString(PyExc_TypeError, "a prefix is bytes");
        Py_CLEAR(prefix);
    }
    if (!prefix)
        return -1;
    to->words[0] = prefix;
    return fill_acks(to, absent, ACKS_AND_TOPIC);
}

static int fill_dict(struct treated *to, PyObject *dict, enum treatment how)
{
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "what is known is a dict");
        return -1;
    }
    to->remembered = Py_NewRef(dict);
    to->how = how;
    return 0;
}

static int fill_ids(struct treated *to, PyObject *look, PyObject *ids)
{
    PyObject *topics_at = PyObject_GetAttr(look, word_topics_at);
    to->topics_at = topics_at ? (int)PyLong_AsLong(topics_at) : 0;
    Py_XDECREF(topics_at);
    return PyErr_Occurred() ? -1 : fill_dict(to, ids, WITH_KNOWN_IDS);
}

/* A tuple of so few objects; 0: of more, which is asked in Python; -1: exception. */
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
static int fill_groups(struct treated *to, PyObject *look, PyObject *groups)
{
    PyObject *place = PyObject_GetAttr(look, word_place), *unless = PyObject_GetAttr(look, word_unless),
             *words = PyObject_GetAttr(look, word_words);
    int result = -1;
    if (place && unless && words &&
        PyArg_ParseTuple(place, "ppi", &to->is_flexible, &to->is_listed, &to->strings_before)) {
        result = fill_tuple(to->groups, groups, 1);
        if (result > 0)
            result = fill_tuple(to->unless, unless, 0);
        if (result > 0)
            result = fill_words(to, words, OF_OTHER_GROUPS);
    }
    Py_XDECREF(place);
    Py_XDECREF(unless);
    Py_XDECREF(words);
    return result;
}

/* What a kind of look has, put to use. */
static int fill_settled(struct treated *to, PyObject *look, long kind)
{
    PyObject *names[] = {
        [LOOK_ACKS] = word_absent, [LOOK_TOPIC] = word_absent, [LOOK_WORDS] = word_words,
        [LOOK_IDS] = word_ids, [LOOK_REMEMBERED] = word_remembered, [LOOK_GROUPS] = word_groups,
    };
    PyObject *found = PyObject_GetAttr(look, names[kind]);
    int result = -1;
    if (found && kind == LOOK_ACKS)
        result = fill_acks(to, found, ACKS);
    else if (found && kind == LOOK_TOPIC)
        result = fill_topic(to, look, found);
    else if (found && kind == LOOK_WORDS)
        result = fill_words(to, found, WITHOUT_WORDS);
    else if (found && kind == LOOK_IDS)
        result = fill_ids(to, look, found);
    else if (found && kind == LOOK_GROUPS)
        result = fill_groups(to, look, found);
    else if (found)
        result = fill_dict(to, found, REMEMBERED);
    Py_XDECREF(found);
    return result;
}

/* A look says by its `kind` what is settled here (request_inspection.MatchKind); one without a kind is called. */
static int fill_look(struct treated *to, PyObject *look)
{
    PyObject *number, *expected = NULL;
    to->how = LOOKS;
    to->look = Py_NewRef(look);
    if (find_attribute(look, word_kind, &number) < 0)
        return -1;
    long kind = number ? PyLong_AsLong(number) : LOOK_CALLED;
    Py_XDECREF(number);
    if (kind == LOOK_CALLED)
        return 0;
    if (kind < LOOK_ACKS || kind > LOOK_GROUPS) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "no kind of look: %ld", kind);
        return -1;
    }
    if (kind != LOOK_REMEMBERED) { /* which remembers what each request expects */
        expected = PyObject_GetAttr(look, word_expected);
        if (!expected || expect(to, expected) < 0) {
            Py_XDECREF(expected);
            return -1;
        }
        Py_DECREF(expected);
    }
    return fill_settled(to, look, kind);
}

static int fill_looked(Table *self, PyObject *looked)
{
    PyObject *name, *look;
    Py_ssize_t position = 0;
    while (PyDict_Next(looked, &position, &name, &look)) {
        struct treated *to = cell(self, name);
        if (PyErr_Occurred() || (to && fill_look(to, look) < 0))
            return -1;
    }
    return 0;
}

static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *plain, *looked, *silent;
    (void)names;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyDict_Type, &plain, &PyDict_Type, &looked, &silent))
        return NULL;
    Table *self = (Table *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    self->silent = Py_NewRef(silent);
    if (fill_plain(self, plain) < 0 || fill_looked(self, looked) < 0) {
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
            struct treated *to = row->of + version;
            Py_VISIT(to->expected);
            Py_VISIT(to->known);
            Py_VISIT(to->look);
            Py_VISIT(to->remembered);
            for (int i = 0; i < GROUPS; i++) {
                Py_VISIT(to->groups[i]);
                Py_VISIT(to->unless[i]);
            }
        }
    }
    return 0;
}

static void clear_cell(struct treated *to)
{
    to->how = STOPS;
    Py_CLEAR(to->expected);
    Py_CLEAR(to->known);
    Py_CLEAR(to->look);
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
    {Py_tp_doc, "Table(plain, looked, silent): which requests pass, by API key and version. See walk.Table."},
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

/* What the request at `at` is expected to bring, as a new reference; NULL without an exception: the walk stops here. */
static PyObject *request_look(PyObject *look, PyObject *view, Py_ssize_t at, Py_ssize_t end, Py_ssize_t frame_end)
{
    PyObject *expected = PyObject_CallFunction(look, "Onnn", view, at, end < frame_end ? end : frame_end, frame_end);
    if (expected == Py_None)
        Py_CLEAR(expected);
    return expected;
}

/* Acks of what producers without transactions send, and where they end; 0 when this is not of that form. */
static Py_ssize_t usual_acks(const unsigned char *buffer, Py_ssize_t at, Py_ssize_t end, int absent, int *acks)
{
    if (at + CLIENT_ID + 4 > end)
        return 0;
    int client_id = int16_at(buffer + at + REQUEST_HEAD);
    if (client_id < -1)
        return 0;
    Py_ssize_t behind = at + CLIENT_ID + (client_id > 0 ? client_id : 0);
    if (behind + 4 > end || buffer[behind] != absent || buffer[behind + 1] != absent)
        return 0;
    *acks = int16_at(buffer + behind + 2);
    return behind + 4;
}

/* Whether a Produce has one topic, whose name has come and does not begin as the views' do; `at`: behind its acks. */
static int is_to_another_topic(const struct treated *to, const unsigned char *frame, Py_ssize_t at, Py_ssize_t end)
{
    char *prefix;
    Py_ssize_t length, prefix_length;
    at += BEHIND_ACKS;
    if (to->absent) { /* the count has four bytes, the length two */
        if (at + 6 > end || int32_at(frame + at) != 1)
            return 0;
        length = int16_at(frame + at + 4);
        at += 6;
    } else { /* both are varints, one more than they say */
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

#define SHORT_WORD 4 /* found faster by its last byte, which is to be a rare one, than memmem finds it */

/* Whether a word stands in the bytes. */
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

/* Whether none of the words stands in the bytes. */
static int lacks_words(const struct treated *to, const unsigned char *from, size_t bytes)
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

/* Entries of a compact array at *at, and *at behind their count; -1: it is null, -2: there is no such thing. */
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

/* Fetch from v13 on: whether each topic id is known and nothing has tags. -1: exception. */
static int names_known_ids(const struct treated *to, const unsigned char *frame, Py_ssize_t end)
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

/* The length of a string at *at, -1 for null, and *at at its first byte; -2: it is not all there. */
static long string_at(const struct treated *to, const unsigned char *frame, Py_ssize_t end, Py_ssize_t *at)
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

#define GROUP_REMEMBERED_MAX 256 /* longer ids are not kept: clients may send 32 KiB */

/* The id in these bytes, as a new reference; that of the last request again where they are the same, as they mostly are
 * on one connection: its hash is known. NULL: they are not UTF-8, or there is an exception. */
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

/* The group that a request names, as a new reference; NULL: it is not of the usual form, or there is an exception. */
static PyObject *leading_group(Walk *self, const struct treated *to, const unsigned char *frame, Py_ssize_t end)
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

/* How much is in all of them; -1: exception. */
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

#define LOOKS_MAX 16 /* walk.INSPECTIONS_MAX; here only those that Python is asked for count */
#define STAYS 2 /* of `settle`: the walk stops, whatever the look would say, which is asked once the request is gathered */

/* 1: the request is about a group that nobody knows and has none of the words; STAYS: it is about a group that is known,
 * or has one; 0: the look has to tell; -1: exception. */
static int is_of_other_group(Walk *self, const struct treated *to, const unsigned char *frame, Py_ssize_t end)
{
    Py_ssize_t unless = size_of_all(to->unless), known = size_of_all(to->groups);
    if (unless || known < 0)
        return unless < 0 || known < 0 ? -1 : 0;
    int passes = lacks_words(to, frame + 4, (size_t)(end - 4));
    if (passes < 0)
        return -1;
    if (!passes)
        return STAYS;
    if (!known)
        return 1;
    PyObject *group = leading_group(self, to, frame, end);
    if (!group)
        return PyErr_Occurred() ? -1 : 0;
    for (int i = 0; i < GROUPS && to->groups[i] && passes == 1; i++) {
        int found = PyDict_Contains(to->groups[i], group);
        passes = found < 0 ? -1 : found ? STAYS : 1;
    }
    Py_DECREF(group);
    return passes;
}

/* Queue what these very bytes were found to expect before. 1: so it is; 0: they are new; -1: exception. */
static int push_remembered(
    Walk *self, struct treated *to, const unsigned char *frame, Py_ssize_t bytes, int32_t correlation_id)
{
    if (bytes - REQUEST_HEAD > REMEMBERED_MAX)
        return 0;
    PyObject *body = PyBytes_FromStringAndSize((const char *)frame + REQUEST_HEAD, bytes - REQUEST_HEAD);
    PyObject *expected = body ? PyDict_GetItemWithError(to->remembered, body) : NULL;
    Py_XDECREF(body);
    if (!expected)
        return PyErr_Occurred() ? -1 : 0;
    if (expected != to->expected && expect(to, expected) < 0)
        return -1;
    return push(self->pending, correlation_id, to->expected, to->gathers, to->known) < 0 ? -1 : 1;
}

/* As `admit`, by what stands in the bytes; 0: Python has to look; STAYS: it need not, the walk stops. */
static int settle(
    Walk *self, struct treated *to, const unsigned char *frame, Py_ssize_t come, Py_ssize_t whole,
    int32_t correlation_id)
{
    int acks, passes = 0;
    if (to->how == ACKS || to->how == ACKS_AND_TOPIC) {
        Py_ssize_t behind = usual_acks(frame, 0, come, to->absent, &acks);
        if (!behind)
            return 0;
        if (to->how == ACKS_AND_TOPIC && (passes = is_to_another_topic(to, frame, behind, come)) <= 0)
            return passes;
        if (!acks)
            return 1; /* it will have no answer */
        passes = 1;
    } else if (come < whole) {
        return 0;
    } else if (to->how == REMEMBERED) {
        return push_remembered(self, to, frame, whole, correlation_id);
    } else if (to->how == WITHOUT_WORDS) {
        passes = lacks_words(to, frame, (size_t)whole);
    } else if (to->how == WITH_KNOWN_IDS) {
        passes = names_known_ids(to, frame, whole);
    } else if (to->how == OF_OTHER_GROUPS) {
        passes = is_of_other_group(self, to, frame, whole);
    }
    if (passes != 1)
        return passes;
    return push(self->pending, correlation_id, to->expected, to->gathers, to->known) < 0 ? -1 : 1;
}

/* 1: the request passes, and what it expects is queued; 0: the walk stops before it; -1: exception. */
static int admit(Walk *self, const unsigned char *buffer, PyObject *view, Py_ssize_t at, Py_ssize_t end, int size)
{
    struct treated *to = place(self->table, buffer + at + 4);
    int32_t correlation_id = int32_at(buffer + at + 8);
    Py_ssize_t frame_end = at + 4 + size, come = end < frame_end ? end : frame_end;
    if (!to || to->how == STOPS)
        return 0;
    if (to->how == PASSES)
        return push(self->pending, correlation_id, to->expected, to->gathers, to->known) < 0 ? -1 : 1;
    int settled = settle(self, to, buffer + at, come - at, frame_end - at, correlation_id);
    if (settled)
        return settled == STAYS ? 0 : settled;
    if (++self->looks > LOOKS_MAX)
        return 0;
    PyObject *expected = request_look(to->look, view, at, end, frame_end);
    if (!expected)
        return PyErr_Occurred() ? -1 : 0;
    int result = expected == self->table->silent || push_new(self->pending, correlation_id, expected) == 0 ? 1 : -1;
    Py_DECREF(expected);
    return result;
}

/* Whether an answer to Produce names no broker and has nothing else out of the common: it passes then. */
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

/* Whether the answer at `at`, of `size` bytes, is one that has to be gathered. */
static int stops(const struct entry *next, const unsigned char *buffer, Py_ssize_t at, Py_ssize_t end, int size)
{
    if (next->gathers < PRODUCE_MIN)
        return next->gathers;
    return at + 4 + size > end || !is_plain_produce(buffer + at, 4 + (Py_ssize_t)size, next->gathers);
}

static Py_ssize_t rest(Walk *self, Py_ssize_t at, Py_ssize_t end)
{
    self->left = at >= end ? at - end : 0;
    return at >= end ? end : at;
}

static Py_ssize_t receive_requests(
    Walk *self, const unsigned char *buffer, PyObject *view, Py_ssize_t start, Py_ssize_t end)
{
    Py_ssize_t at = start + (Py_ssize_t)self->left;
    self->looks = 0;
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
    Py_ssize_t at = start + (Py_ssize_t)self->left;
    Pending *pending = self->pending;
    while (at + RESPONSE_HEAD <= end && pending->count) {
        int size = int32_at(buffer + at);
        struct entry *next = &pending->ring[pending->first];
        if (next->correlation_id != int32_at(buffer + at + 4) || size < RESPONSE_MIN || size > self->frame_max ||
            stops(next, buffer, at, end, size))
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

static int recall(Walk *self, const unsigned char *buffer, Py_ssize_t end, Py_ssize_t most, struct rewritten *found)
{
    Pending *pending = self->pending;
    if (self->table || self->left || end < RESPONSE_HEAD || !pending->count || int32_at(buffer) != end - 4)
        return 0;
    struct entry *next = &pending->ring[pending->first];
    if (!next->known || next->correlation_id != int32_at(buffer + 4))
        return 0;
    PyObject *body = PyBytes_FromStringAndSize((const char *)buffer + RESPONSE_HEAD, end - RESPONSE_HEAD);
    PyObject *kept = body ? PyDict_GetItemWithError(next->known, body) : NULL;
    Py_XDECREF(body);
    if (!kept)
        return PyErr_Occurred() ? -1 : 0;
    char *size, *rest;
    Py_ssize_t size_bytes;
    if (!PyTuple_Check(kept) || PyTuple_Size(kept) != 2 ||
        PyBytes_AsStringAndSize(PyTuple_GetItem(kept, 0), &size, &size_bytes) < 0 ||
        PyBytes_AsStringAndSize(PyTuple_GetItem(kept, 1), &rest, &found->rest_bytes) < 0)
        return PyErr_Occurred() ? -1 : 0;
    if (found->rest_bytes + RESPONSE_HEAD > most)
        return 0;
    found->kept = Py_NewRef(kept);
    found->size = size_bytes == 4 ? size : NULL;
    found->rest = rest;
    drop_first(pending);
    return 1;
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
    Table *before = ((Walk *)self)->table;
    ((Walk *)self)->table = (Table *)Py_NewRef(table);
    Py_XDECREF((PyObject *)before);
    Py_RETURN_NONE;
}

static int begin(Walk *self, PyObject *pending, PyObject *table, int frame_max)
{
    Pending *before = self->pending;
    self->pending = (Pending *)Py_NewRef(pending);
    Py_XDECREF((PyObject *)before);
    Table *used = self->table;
    self->table = (Table *)Py_XNewRef(table);
    Py_XDECREF((PyObject *)used);
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
    (void)self; /* what refers back to a connection lies in the ring, which the ring's own clear breaks */
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
    {"pending", T_OBJECT_EX, offsetof(Walk, pending), READONLY, "What waits for its answer."},
    {"left", T_LONGLONG, offsetof(Walk, left), 0, "Bytes of a frame that passes which are still to come."},
    {"bytes", T_LONGLONG, offsetof(Walk, bytes), 0, "Passed on so far."},
    {"flows", T_BOOL, offsetof(Walk, flows), 0, "Nothing is in the way: the fast path may be taken."},
    {"quiet_s", T_INT, offsetof(Walk, quiet_s), 0, "Sweeps (seconds) since the last byte."},
    {"in_flight_max", T_INT, offsetof(Walk, in_flight_max), 0, "More requests than this wait: no more is read."},
    {"frame_max", T_INT, offsetof(Walk, frame_max), READONLY, "The largest size a frame may have."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef requests_methods[] = {
    {"receive", walk_receive, METH_VARARGS, "receive(buffer, start, end): see walk.RequestWalk."},
    {"use", walk_use, METH_O, "From the next frame on, go by this table."},
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

static struct walk_functions functions = {NULL, NULL, receive, recall};

/* Rooms: where frames of megabytes are read into. Given back, a large one is kept and given again: its pages are there
 * already, and what the caches still have of it is of use. */

#define ROOM_BYTES ((4 << 20) + (64 << 10)) /* gathering.PRESIZED_MAX */
#define ROOM_MIN (3 << 20) /* smaller frames do not hold so much memory */
#define ROOMS_KEPT 4
#define HUGE_PAGE (2 << 20)

typedef struct {
    PyObject_HEAD
    void *bytes;
} Room;

static PyTypeObject *room_type;
static void *rooms[ROOMS_KEPT]; /* nobody's */
static int rooms_kept;

static void *take_room(void)
{
    if (rooms_kept)
        return rooms[--rooms_kept];
    void *bytes;
    if (posix_memalign(&bytes, HUGE_PAGE, ROOM_BYTES))
        return NULL;
#ifdef MADV_HUGEPAGE
    (void)madvise(bytes, ROOM_BYTES / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* a hint: without it all is the same */
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
    PyObject *whole = room ? PyMemoryView_FromObject(room) : NULL;
    Py_XDECREF(room);
    PyObject *view = whole ? PySequence_GetSlice(whole, 0, size) : NULL;
    Py_XDECREF(whole);
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

/* Make a type and give it a name in the module; a borrowed reference that the module keeps alive. */
static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromSpec(spec);
    if (!type || PyModule_AddObjectRef(module, name, type) < 0)
        return NULL;
    return (PyTypeObject *)type; /* this reference is kept for good: other modules use it through the capsule */
}

PyMODINIT_FUNC PyInit__walk(void)
{
    PyObject *module = PyModule_Create(&definition);
    word_rewrite = PyUnicode_InternFromString("rewrite");
    word_known = PyUnicode_InternFromString("known");
    word_kind = PyUnicode_InternFromString("kind");
    word_absent = PyUnicode_InternFromString("absent");
    word_prefix = PyUnicode_InternFromString("prefix");
    word_expected = PyUnicode_InternFromString("expected");
    word_words = PyUnicode_InternFromString("words");
    word_ids = PyUnicode_InternFromString("ids");
    word_topics_at = PyUnicode_InternFromString("topics_at");
    word_remembered = PyUnicode_InternFromString("remembered");
    word_produce_version = PyUnicode_InternFromString("produce_version");
    word_groups = PyUnicode_InternFromString("groups");
    word_unless = PyUnicode_InternFromString("unless");
    word_place = PyUnicode_InternFromString("place");
    if (!module || !word_rewrite || !word_known || !word_kind || !word_absent || !word_prefix || !word_expected || !word_words || !word_ids ||
        !word_topics_at || !word_remembered || !word_produce_version || !word_groups || !word_unless || !word_place)
        return NULL;
    pending_type = add_type(module, &pending_spec, "Pending");
    table_type = add_type(module, &table_spec, "Table");
    functions.requests = add_type(module, &requests_spec, "RequestWalk");
    functions.answers = add_type(module, &responses_spec, "ResponseWalk");
    room_type = add_type(module, &room_spec, "Room");
    PyObject *capsule = PyCapsule_New(&functions, WALK_CAPSULE, NULL);
    if (!pending_type || !table_type || !functions.requests || !functions.answers || !room_type || !capsule ||
        PyModule_AddObjectRef(module, "functions", capsule) < 0 || PyModule_AddIntConstant(module, "VERSION", VERSION) < 0)
        return NULL;
    Py_DECREF(capsule);
    return module;
}
