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

enum { VERSION = 2, LOG_OVERHEAD = 12, MAGIC_AT = 16, HEADER = 61, ROW = 52, MASK_OLD = 0x0F, COMPRESSED = 0x07 };
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

PyDoc_STRVAR(search_doc, "search(rows, column, offset, low, high) -> int: first row of low..high with at least this offset");

static PyObject *search(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    char *rows;
    Py_ssize_t size;
    if (count != 5) return PyErr_Format(PyExc_TypeError, "search takes 5 arguments, not %zd", count);
    if (PyBytes_AsStringAndSize(args[0], &rows, &size) < 0) return NULL;
    int is_beyond;
    const int64_t offset = PyLong_AsLongLongAndOverflow(args[2], &is_beyond);
    const Py_ssize_t column = PyLong_AsSsize_t(args[1]), high = PyLong_AsSsize_t(args[4]);
    Py_ssize_t low = PyLong_AsSsize_t(args[3]);
    if (PyErr_Occurred()) return NULL;
    if (low < 0 || low > high || high > size / ROW || column < 0 || column > ROW - 8)
        return PyErr_Format(PyExc_ValueError, "rows or a column outside the table");
    for (Py_ssize_t end = is_beyond < 0 ? low : high; low < end;) {
        const Py_ssize_t middle = low + (end - low) / 2;
        if (is_beyond || get64((const uint8_t *)rows + middle * ROW, (int)column) < offset) low = middle + 1;
        else end = middle;
    }
    return PyLong_FromSsize_t(low);
}

static int prepare(PyObject *module) { return PyModule_AddIntConstant(module, "VERSION", VERSION); }

static PyMethodDef functions[] = {
    {"walk", (PyCFunction)(void (*)(void))walk, METH_FASTCALL, walk_doc},
    {"fates", (PyCFunction)(void (*)(void))fates, METH_FASTCALL, fates_doc},
    {"ranges", (PyCFunction)(void (*)(void))ranges, METH_FASTCALL, ranges_doc},
    {"count", count_records, METH_O, count_doc},
    {"search", (PyCFunction)(void (*)(void))search, METH_FASTCALL, search_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kafka_share_proxy.wire.records._batches",
    .m_doc = "Headers of record batches, as rows.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__batches(void) { return PyModuleDef_Init(&definition); }
