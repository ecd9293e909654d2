/* Headers of all record batches of one Fetch response as rows of one table: producers without linger write batches of 88
 * bytes, and a response of 4 MiB has 50,000 of them.
 *
 * The rules are those of the Python fallback in batches.py; tests compare the two. No read leaves the buffer: every size is
 * compared with the remaining bytes before it is used. Limited API of CPython 3.11.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "record_bytes.h"

#include <stdlib.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "rows have little-endian numbers: use the Python fallback"
#endif

enum { VERSION = 3, LOG_OVERHEAD = 12, MAGIC_AT = 16, HEADER = 61, ROW = 52, MASK_OLD = 0x0F, COMPRESSED = 0x07 };
enum { TRANSACTIONAL = 0x10, CONTROL = 0x20 };
enum { KEPT = 0, ABORTED = 1, MARKER = 2 };

/* Positions of the fields of a row, as in batches.ROW. */
enum { BASE = 0, LAST = 8, TIMESTAMP = 16, PRODUCER = 24, POSITION = 32, SIZE = 36, EPOCH = 40, COUNT = 44, ATTRIBUTES = 48 };
enum { MAGIC = 50 };

static void put(uint8_t *row, int at, const void *value, size_t size) { memcpy(row + at, value, size); }
static int64_t get64(const uint8_t *row, int at) { int64_t v; memcpy(&v, row + at, 8); return v; }
static int32_t get32(const uint8_t *row, int at) { int32_t v; memcpy(&v, row + at, 4); return v; }

typedef struct {
    int64_t base, last, timestamp, producer;
    uint32_t position, size;
    int32_t epoch, count;
    int16_t attributes;
    int8_t magic;
} Batch;

static void write_row(uint8_t *row, const Batch *of) {
    put(row, BASE, &of->base, 8);
    put(row, LAST, &of->last, 8);
    put(row, TIMESTAMP, &of->timestamp, 8);
    put(row, PRODUCER, &of->producer, 8);
    put(row, POSITION, &of->position, 4);
    put(row, SIZE, &of->size, 4);
    put(row, EPOCH, &of->epoch, 4);
    put(row, COUNT, &of->count, 4);
    put(row, ATTRIBUTES, &of->attributes, 2);
    put(row, MAGIC, &of->magic, 1);
    row[MAGIC + 1] = 0;
}

/* Return the size of the batch at `p`; 0: it is incomplete; -1: an impossible size. */
static int64_t size_of(const uint8_t *p, size_t remaining) {
    if (remaining <= MAGIC_AT) return 0;
    const int64_t length = (int32_t)big32(p + 8);
    const int64_t length_min = p[MAGIC_AT] == 2 ? HEADER - LOG_OVERHEAD : p[MAGIC_AT] == 1 ? 22 : p[MAGIC_AT] == 0 ? 14 : INT64_MAX;
    if (length < length_min) return -1;
    return (uint64_t)length + LOG_OVERHEAD > remaining ? 0 : length + LOG_OVERHEAD;
}

/* Read a header. Return NULL, or what is wrong with it. */
static const char *read_batch(Batch *of, const uint8_t *p) {
    of->magic = (int8_t)p[MAGIC_AT];
    of->base = of->last = (int64_t)big64(p);
    if (of->magic < 2) {
        if (of->base < 0) return "a message at a negative offset";
        of->attributes = p[MAGIC_AT + 1] & MASK_OLD;
        of->timestamp = of->magic == 1 ? (int64_t)big64(p + MAGIC_AT + 2) : -1;
        of->producer = -1;
        of->epoch = -1;
        of->count = 1;
        return NULL;
    }
    const int32_t delta = (int32_t)big32(p + 23);
    of->count = (int32_t)big32(p + 57);
    if (of->base < 0 || delta < 0 || of->count < 0 || of->base > INT64_MAX - delta) return "offsets or count of a record batch";
    of->last = of->base + delta;
    of->epoch = (int32_t)big32(p + 12);
    of->attributes = (int16_t)((uint16_t)p[21] << 8 | p[22]);
    of->timestamp = (int64_t)big64(p + 35);
    of->producer = (int64_t)big64(p + 43);
    return NULL;
}

static PyObject *rows_of(const uint8_t *data, size_t size, int64_t after, const int is_widened) {
    size_t end = 0, count = 0;
    int64_t next;
    while ((next = size_of(data + end, size - end)) > 0) {
        end += (size_t)next;
        count++;
    }
    if (next < 0) return PyErr_Format(PyExc_ValueError, "a record batch of a size or magic that none has, at byte %zu", end);
    PyObject *rows = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * ROW));
    if (!rows) return NULL;
    uint8_t *row = (uint8_t *)PyBytes_AsString(rows);
    Batch batch = {0};
    for (size_t at = 0; at < end; at += batch.size, row += ROW) {
        const char *wrong = read_batch(&batch, data + at);
        if (wrong) {
            Py_DECREF(rows);
            return PyErr_Format(PyExc_ValueError, "%s", wrong);
        }
        batch.position = (uint32_t)at;
        batch.size = (uint32_t)size_of(data + at, size - at);
        if (is_widened && batch.magic < 2 && (batch.attributes & COMPRESSED) && after < batch.base) batch.base = after;
        after = batch.last + 1;
        write_row(row, &batch);
    }
    return Py_BuildValue("(Nn)", rows, (Py_ssize_t)end);
}

PyDoc_STRVAR(walk_doc, "walk(records, fetch_offset) -> (rows, bytes they take); raises ValueError");

static PyObject *walk(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer data;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "walk takes 2 arguments, not %zd", count);
    const int64_t offset = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *result = (uint64_t)data.len > UINT32_MAX ? PyErr_Format(PyExc_ValueError, "records of more than 4 GiB")
        : rows_of(data.buf, (size_t)data.len, offset, offset >= 0);
    PyBuffer_Release(&data);
    return result;
}

/* Producer in a list of aborted transactions. is_active: one of its transactions is open. */
typedef struct { int64_t id; uint8_t is_used, is_active; } Producer;

static Producer *producer(Producer *table, size_t mask, int64_t id) {
    size_t at = (size_t)((uint64_t)id * 0x9E3779B97F4A7C15u >> 32) & mask;
    while (table[at].is_used && table[at].id != id) at = (at + 1) & mask;
    return table + at;
}

/* Set the fate of each row under read_committed. `pending`: first offset and producer id of each transaction, ascending. */
static void judge(uint8_t *fates, const uint8_t *row, size_t rows, const uint8_t *pending, size_t transactions, Producer *table, size_t mask) {
    for (; rows; rows--, row += ROW) {
        const int attributes = row[ATTRIBUTES];
        for (; transactions && get64(pending, 0) <= get64(row, LAST); transactions--, pending += 16) {
            Producer *started = producer(table, mask, get64(pending, 8));
            *started = (Producer){get64(pending, 8), 1, 1};
        }
        Producer *entry = producer(table, mask, get64(row, PRODUCER));
        const int is_active = entry->is_used && entry->is_active && get64(row, PRODUCER) >= 0;
        if (attributes & CONTROL && is_active && get32(row, COUNT)) entry->is_active = 0;
        *fates++ = attributes & CONTROL ? MARKER : attributes & TRANSACTIONAL && is_active ? ABORTED : KEPT;
    }
}

static PyObject *judged(const uint8_t *rows, size_t count, const uint8_t *transactions, size_t transaction_count) {
    size_t room = 4;
    while (room < 2 * transaction_count + 2) room *= 2;
    PyObject *fates = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)count);
    Producer *table = fates ? calloc(room, sizeof(Producer)) : NULL;
    if (!table) {
        Py_XDECREF(fates);
        return PyErr_NoMemory();
    }
    judge((uint8_t *)PyBytes_AsString(fates), rows, count, transactions, transaction_count, table, room - 1);
    free(table);
    return fates;
}

PyDoc_STRVAR(fates_doc, "fates(rows, transactions) -> bytes: of each row 0 kept, 1 aborted, 2 a marker");

static PyObject *fates(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    char *rows, *transactions;
    Py_ssize_t size, listed;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "fates takes 2 arguments, not %zd", count);
    if (PyBytes_AsStringAndSize(args[0], &rows, &size) < 0 || PyBytes_AsStringAndSize(args[1], &transactions, &listed) < 0)
        return NULL;
    if (size % ROW || listed % 16) return PyErr_Format(PyExc_ValueError, "rows or transactions of a broken size");
    return judged((const uint8_t *)rows, (size_t)size / ROW, (const uint8_t *)transactions, (size_t)listed / 16);
}

PyDoc_STRVAR(ranges_doc, "ranges(rows, fates) -> list of (first, last): offsets of aborted rows, neighbours merged");

static PyObject *ranges(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    char *rows, *fates;
    Py_ssize_t size, judged_count;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "ranges takes 2 arguments, not %zd", count);
    if (PyBytes_AsStringAndSize(args[0], &rows, &size) < 0 || PyBytes_AsStringAndSize(args[1], &fates, &judged_count) < 0)
        return NULL;
    if (size != judged_count * ROW) return PyErr_Format(PyExc_ValueError, "fates of other rows");
    PyObject *merged = PyList_New(0);
    for (Py_ssize_t i = 0; merged && i < judged_count; i++) {
        if (fates[i] != ABORTED) continue;
        const uint8_t *row = (const uint8_t *)rows + i * ROW;
        const int64_t first = get64(row, BASE);
        int64_t last = get64(row, LAST);
        for (; i + 1 < judged_count && fates[i + 1] == ABORTED && get64(row + ROW, BASE) == last + 1; i++, row += ROW)
            last = get64(row + ROW, LAST);
        PyObject *range = Py_BuildValue("(LL)", (long long)first, (long long)last);
        if (!range || PyList_Append(merged, range) < 0) Py_CLEAR(merged);
        Py_XDECREF(range);
    }
    return merged;
}

PyDoc_STRVAR(count_doc, "count(rows) -> int: records in all batches");

static PyObject *count_records(PyObject *module, PyObject *rows) {
    (void)module;
    char *row;
    Py_ssize_t size;
    long long sum = 0;
    if (PyBytes_AsStringAndSize(rows, &row, &size) < 0) return NULL;
    for (; size >= ROW; size -= ROW, row += ROW) sum += get32((const uint8_t *)row, COUNT);
    return PyLong_FromLongLong(sum);
}

/* ---- a table ---- */

/* Rows `first` to `last` of `bytes`, which may be those of several tables. */
typedef struct {
    PyObject_HEAD
    PyObject *bytes;
    const uint8_t *rows;
    Py_ssize_t first, last;
} Rows;

static PyObject *batch_class;
static newfunc new_tuple;

/* Return a table of the class `type`. It may be a class of Python that inherits from Rows. */
static PyObject *new_rows(PyTypeObject *type, PyObject *bytes, Py_ssize_t first, Py_ssize_t last) {
    Rows *self = (Rows *)PyType_GenericAlloc(type, 0);
    if (!self) return NULL;
    self->bytes = Py_NewRef(bytes);
    self->rows = (const uint8_t *)PyBytes_AsString(bytes);
    self->first = first;
    self->last = last;
    return (PyObject *)self;
}

static PyObject *rows_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    (void)names;
    PyObject *bytes;
    if (!PyArg_ParseTuple(args, "S", &bytes)) return NULL;
    const Py_ssize_t size = PyBytes_Size(bytes);
    if (size % ROW) return PyErr_Format(PyExc_ValueError, "%zd bytes are no rows of %d bytes", size, ROW);
    return new_rows(type, bytes, 0, size / ROW);
}

static void rows_free(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((Rows *)object)->bytes);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static Py_ssize_t rows_length(PyObject *object) { return ((Rows *)object)->last - ((Rows *)object)->first; }

/* Return a Batch. */
static PyObject *batch_of(const uint8_t *row) {
    int16_t attributes;
    memcpy(&attributes, row + ATTRIBUTES, 2);
    PyObject *fields = Py_BuildValue("((LLLLIIiiii))", (long long)get64(row, BASE), (long long)get64(row, LAST),
        (long long)get64(row, TIMESTAMP), (long long)get64(row, PRODUCER), (unsigned)get32(row, POSITION),
        (unsigned)get32(row, SIZE), get32(row, EPOCH), get32(row, COUNT), attributes, (int8_t)row[MAGIC]);
    PyObject *batch = fields ? new_tuple((PyTypeObject *)batch_class, fields, NULL) : NULL;
    Py_XDECREF(fields);
    return batch;
}

static PyObject *rows_item(PyObject *object, PyObject *key) {
    const Rows *self = (Rows *)object;
    Py_ssize_t start, stop, step;
    if (!PySlice_Check(key)) {
        const Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError);
        if (index == -1 && PyErr_Occurred()) return NULL;
        const Py_ssize_t at = index + (index < 0 ? self->last : self->first);
        if (at < self->first || at >= self->last) return PyErr_Format(PyExc_IndexError, "%zd", index);
        return batch_of(self->rows + at * ROW);
    }
    if (PySlice_Unpack(key, &start, &stop, &step) < 0) return NULL;
    if (step != 1) return PyErr_Format(PyExc_ValueError, "a table of batches has no other order");
    const Py_ssize_t count = PySlice_AdjustIndices(rows_length(object), &start, &stop, step);
    return new_rows(Py_TYPE(object), self->bytes, self->first + start, self->first + start + count);
}

/* Return the first index, from `low` on, with at least this offset at byte `column` of its row. */
static PyObject *search(PyObject *object, int column, PyObject *offset_wanted, PyObject *from) {
    const Rows *self = (Rows *)object;
    int is_beyond;
    const int64_t offset = PyLong_AsLongLongAndOverflow(offset_wanted, &is_beyond);
    Py_ssize_t low = from ? PyLong_AsSsize_t(from) : 0;
    if (PyErr_Occurred()) return NULL;
    if (low < 0 || low > rows_length(object)) return PyErr_Format(PyExc_ValueError, "a search outside the table");
    const uint8_t *rows = self->rows + self->first * ROW + column;
    for (Py_ssize_t end = is_beyond < 0 ? low : rows_length(object); low < end;) {
        const Py_ssize_t middle = low + (end - low) / 2;
        if (is_beyond || get64(rows + middle * ROW, 0) < offset) low = middle + 1;
        else end = middle;
    }
    return PyLong_FromSsize_t(low);
}

PyDoc_STRVAR(first_from_doc, "first_from(offset, low=0) -> int: first batch, from `low` on, that begins at or after the offset");

static PyObject *first_from(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    if (count != 1 && count != 2) return PyErr_Format(PyExc_TypeError, "first_from takes 1 or 2 arguments, not %zd", count);
    return search(object, BASE, args[0], count == 2 ? args[1] : NULL);
}

PyDoc_STRVAR(first_to_doc, "first_to(offset) -> int: first batch that ends at or after the offset");

static PyObject *first_to(PyObject *object, PyObject *offset) { return search(object, LAST, offset, NULL); }

PyDoc_STRVAR(position_doc, "position(index) -> int: where the batch begins; for the number of batches: where the last one ends");

static PyObject *position(PyObject *object, PyObject *number) {
    const Rows *self = (Rows *)object;
    const Py_ssize_t index = PyLong_AsSsize_t(number), count = rows_length(object);
    if (index == -1 && PyErr_Occurred()) return NULL;
    if (index < 0 || index > count || !count) return PyErr_Format(PyExc_IndexError, "%zd", index);
    const uint8_t *row = self->rows + (self->first + index - (index == count)) * ROW;
    const uint32_t begin = (uint32_t)get32(row, POSITION), size = index == count ? (uint32_t)get32(row, SIZE) : 0;
    return PyLong_FromUnsignedLongLong((unsigned long long)begin + size);
}

static PyObject *rows_bytes(PyObject *object, void *nothing) {
    (void)nothing;
    const Rows *self = (Rows *)object;
    if (!self->first && self->last * ROW == PyBytes_Size(self->bytes)) return Py_NewRef(self->bytes);
    return PyBytes_FromStringAndSize((const char *)self->rows + self->first * ROW, rows_length(object) * ROW);
}

static PyMethodDef rows_methods[] = {
    {"first_from", (PyCFunction)(void (*)(void))first_from, METH_FASTCALL, first_from_doc},
    {"first_to", first_to, METH_O, first_to_doc},
    {"position", position, METH_O, position_doc},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef rows_getters[] = {{"rows", rows_bytes, NULL, "Contiguous bytes of the rows.", NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot rows_slots[] = {
    {Py_tp_doc, "Rows(rows): a table of batches; raises ValueError if the bytes are no rows."},
    {Py_tp_new, rows_new},
    {Py_tp_dealloc, rows_free},
    {Py_mp_length, rows_length},
    {Py_sq_length, rows_length},
    {Py_mp_subscript, rows_item},
    {Py_tp_methods, rows_methods},
    {Py_tp_getset, rows_getters},
    {0, NULL},
};
static PyType_Spec rows_spec = {
    "kafka_share_proxy.wire.records._batches.Rows", sizeof(Rows), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, rows_slots
};

PyDoc_STRVAR(return_items_doc, "return_items_as(batch_class): the subclass of tuple of which the items of all tables are");

static PyObject *return_items_as(PyObject *module, PyObject *type) {
    (void)module;
    PyObject *before = batch_class;
    batch_class = Py_NewRef(type);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static int prepare(PyObject *module) {
    PyObject *type = PyType_FromSpec(&rows_spec);
    if (!type) return -1;
    new_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    const int failed = PyModule_AddObjectRef(module, "Rows", type);
    Py_DECREF(type);
    return failed ? -1 : PyModule_AddIntConstant(module, "VERSION", VERSION);
}

static PyMethodDef functions[] = {
    {"walk", (PyCFunction)(void (*)(void))walk, METH_FASTCALL, walk_doc},
    {"fates", (PyCFunction)(void (*)(void))fates, METH_FASTCALL, fates_doc},
    {"ranges", (PyCFunction)(void (*)(void))ranges, METH_FASTCALL, ranges_doc},
    {"count", count_records, METH_O, count_doc},
    {"return_items_as", return_items_as, METH_O, return_items_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kafka_share_proxy.wire.records._batches",
    .m_doc = "Headers of record batches, as rows of a table.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__batches(void) { return PyModuleDef_Init(&definition); }
