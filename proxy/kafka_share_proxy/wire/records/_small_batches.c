/* Record batches of magic 2, as state and dead letters are appended, written in one pass. Batches of state are recognised by
 * their keys without decoding, and the last value of each key is kept. The Python fallbacks are records.build_batch and
 * decode_records: tests compare them, and they process unusual records. Limited API of CPython 3.11.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "checksum.h"

enum { VERSION = 4 }; /* records.BUILT_VERSION */
enum { HEADER = 61, LOG_OVERHEAD = 12, MAGIC_AT = 16, CRC_AT = 17, CRC_FROM = 21, COUNT_AT = 57, MAGIC = 2 };
enum { LAST_DELTA_AT = 23, NEWEST_AT = 35, PRODUCER_ID_AT = 43, EPOCH_AT = 51, TYPE = 2 };
enum { OUT_OF_COMMON = 0x37 }; /* attributes: compressed, of a transaction, or a marker */
enum { KEY, VALUE, HEADERS, TIMESTAMP, OFFSET, FIELDS }; /* of records.Record */
enum { BASE_OFFSET, LEADER_EPOCH, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, ATTRIBUTES, NUMBERS };

static const int64_t LEAST[NUMBERS] = {0, INT32_MIN, INT64_MIN, INT16_MIN, INT32_MIN, INT16_MIN};
static const int64_t MOST[NUMBERS] = {INT64_MAX - INT32_MAX, INT32_MAX, INT64_MAX, INT16_MAX, INT32_MAX, INT16_MAX};

typedef struct {
    const uint8_t *bytes; /* NULL: null */
    Py_ssize_t size;
} Field;

typedef struct {
    Field key, value;
    PyObject *headers; /* a tuple, borrowed */
    int64_t timestamp;
    int64_t size; /* of the record, without the length field before it */
} Row;

/* ---- sizes and bytes ---- */

static uint64_t zigzag(int64_t value) { return (uint64_t)value << 1 ^ (value < 0 ? ~(uint64_t)0 : 0); }

static int size_of_varint(int64_t value) {
    int size = 1;
    for (uint64_t rest = zigzag(value) >> 7; rest; rest >>= 7) size++;
    return size;
}

static uint8_t *put_varint(uint8_t *to, int64_t value) {
    uint64_t rest = zigzag(value);
    for (; rest >= 0x80; rest >>= 7) *to++ = (uint8_t)(rest | 0x80);
    *to++ = (uint8_t)rest;
    return to;
}

static uint8_t *put_number(uint8_t *to, int64_t value, int bytes) {
    for (int i = bytes; i--; value >>= 8) to[i] = (uint8_t)value;
    return to + bytes;
}

static int64_t size_of_field(const Field *of) { return of->bytes ? size_of_varint(of->size) + of->size : 1; }

static uint8_t *put_field(uint8_t *to, const Field *from) {
    to = put_varint(to, from->bytes ? from->size : -1);
    if (from->bytes && from->size) memcpy(to, from->bytes, (size_t)from->size);
    return to + (from->bytes ? from->size : 0);
}

/* ---- records ---- */

static int read_field(Field *to, PyObject *from) {
    to->bytes = NULL;
    to->size = 0;
    if (from == Py_None) return 1;
    if (!PyBytes_Check(from)) return 0;
    to->bytes = (const uint8_t *)PyBytes_AsString(from);
    to->size = PyBytes_Size(from);
    return 1;
}

static int read_number(int64_t *to, PyObject *from, int64_t least, int64_t most) {
    if (!PyLong_Check(from)) return 0;
    int is_other;
    *to = PyLong_AsLongLongAndOverflow(from, &is_other);
    return !is_other && *to >= least && *to <= most;
}

/* Read a header: a name, which is never null, and a value. */
static int read_header(Field *name, Field *value, PyObject *header) {
    if (!PyTuple_Check(header) || PyTuple_Size(header) != 2 || !PyUnicode_Check(PyTuple_GetItem(header, 0))) return 0;
    name->bytes = (const uint8_t *)PyUnicode_AsUTF8AndSize(PyTuple_GetItem(header, 0), &name->size);
    if (!name->bytes) PyErr_Clear(); /* a surrogate: the fallback raises the error */
    return name->bytes && read_field(value, PyTuple_GetItem(header, 1));
}

/* Return the bytes of all headers of a record, their count included; -1: an unusual one. */
static int64_t size_of_headers(PyObject *headers) {
    const Py_ssize_t count = PyTuple_Size(headers);
    int64_t total = size_of_varint(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        Field name = {0}, value = {0};
        if (!read_header(&name, &value, PyTuple_GetItem(headers, i))) return -1;
        total += size_of_field(&name) + size_of_field(&value);
    }
    return total;
}

static uint8_t *put_headers(uint8_t *to, PyObject *headers) {
    const Py_ssize_t count = PyTuple_Size(headers);
    to = put_varint(to, count);
    for (Py_ssize_t i = 0; i < count; i++) {
        Field name = {0}, value = {0};
        read_header(&name, &value, PyTuple_GetItem(headers, i)); /* as `size_of_headers` has read it */
        to = put_field(put_field(to, &name), &value);
    }
    return to;
}

/* Read a record. True if it is a usual one. Timestamps are at least -1, so that differences do not overflow. */
static int read_record(Row *to, PyObject *record) {
    int64_t offset;
    if (!PyTuple_Check(record) || PyTuple_Size(record) < FIELDS) return 0;
    to->headers = PyTuple_GetItem(record, HEADERS);
    if (!PyTuple_Check(to->headers)) return 0;
    return read_field(&to->key, PyTuple_GetItem(record, KEY)) && read_field(&to->value, PyTuple_GetItem(record, VALUE))
        && read_number(&to->timestamp, PyTuple_GetItem(record, TIMESTAMP), -1, INT64_MAX)
        && read_number(&offset, PyTuple_GetItem(record, OFFSET), -1, -1);
}

/* Read all records and return their bytes; -1: one of them is unusual, or there are too many. */
static int64_t read_records(Row *rows, Py_ssize_t count, PyObject *records) {
    int64_t total = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        Row *row = rows + i;
        if (!read_record(row, PyList_GetItem(records, i))) return -1;
        const int64_t delta = row->timestamp - rows->timestamp, headers = size_of_headers(row->headers);
        if (headers < 0) return -1;
        row->size = 1 + size_of_varint(delta) + size_of_varint(i) + size_of_field(&row->key) + size_of_field(&row->value) + headers;
        total += size_of_varint(row->size) + row->size;
        if (total > INT32_MAX - HEADER) return -1;
    }
    return total;
}

static uint8_t *put_records(uint8_t *to, const Row *rows, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        to = put_varint(to, rows[i].size);
        *to++ = 0; /* attributes */
        to = put_varint(to, rows[i].timestamp - rows->timestamp);
        to = put_varint(to, i);
        to = put_field(to, &rows[i].key);
        to = put_field(to, &rows[i].value);
        to = put_headers(to, rows[i].headers);
    }
    return to;
}

/* ---- the batch ---- */

static void put_batch(uint8_t *at, const int64_t *numbers, const Row *rows, Py_ssize_t count, int64_t total) {
    uint8_t *const begin = at;
    int64_t newest = rows->timestamp;
    for (Py_ssize_t i = 1; i < count; i++) newest = rows[i].timestamp > newest ? rows[i].timestamp : newest;
    at = put_number(at, numbers[BASE_OFFSET], 8);
    at = put_number(at, HEADER - LOG_OVERHEAD + total, 4);
    at = put_number(at, numbers[LEADER_EPOCH], 4);
    at = put_number(at, MAGIC, 1);
    at = put_number(at, 0, 4); /* the checksum */
    at = put_number(at, numbers[ATTRIBUTES], 2);
    at = put_number(at, count - 1, 4);
    at = put_number(at, rows->timestamp, 8);
    at = put_number(at, newest, 8);
    at = put_number(at, numbers[PRODUCER_ID], 8);
    at = put_number(at, numbers[PRODUCER_EPOCH], 2);
    at = put_number(at, numbers[BASE_SEQUENCE], 4);
    at = put_number(at, count, 4);
    at = put_records(at, rows, count);
    put_number(begin + CRC_AT, crc32c(0, begin + CRC_FROM, (size_t)(at - begin - CRC_FROM)), 4);
}

static PyObject *built(PyObject *records, const int64_t *numbers) {
    Py_ssize_t count = PyList_Size(records);
    Row *rows = PyMem_Malloc((size_t)count * sizeof *rows);
    if (!rows) return PyErr_NoMemory();
    int64_t total = read_records(rows, count, records);
    PyObject *batch = total < 0 ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(HEADER + total));
    if (batch && total >= 0) put_batch((uint8_t *)PyBytes_AsString(batch), numbers, rows, count, total);
    PyMem_Free(rows);
    return batch;
}

static const char build_doc[] =
    "build(records, base_offset, leader_epoch, producer_id, producer_epoch, base_sequence, attributes): the batch; None: it is"
    " unusual.";

static PyObject *build(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    int64_t numbers[NUMBERS];
    if (count != 1 + NUMBERS) return PyErr_Format(PyExc_TypeError, "build takes %d arguments, not %zd", 1 + NUMBERS, count);
    int is_usual = PyList_Check(args[0]) && PyList_Size(args[0]) > 0;
    for (int i = 0; i < NUMBERS && is_usual; i++) is_usual = read_number(numbers + i, args[1 + i], LEAST[i], MOST[i]);
    return is_usual ? built(args[0], numbers) : Py_NewRef(Py_None);
}

/* ---- keys ---- */

/* True if the bytes are exactly one batch, neither compressed nor transactional, with a correct checksum. */
static int is_usual(const uint8_t *batch, size_t size) {
    return size >= HEADER && big32(batch + 8) == size - LOG_OVERHEAD && batch[MAGIC_AT] == MAGIC
        && !(batch[CRC_FROM + 1] & OUT_OF_COMMON)
        && big32(batch + CRC_AT) == crc32c(0, batch + CRC_FROM, size - CRC_FROM);
}

/* End of the record at `p`. NULL if its key does not begin with the prefix, or if it is not a valid record. */
static const uint8_t *after_record(const uint8_t *p, const uint8_t *end, const uint8_t *prefix, Py_ssize_t length) {
    int64_t size, number, key;
    if (!(p = varint(p, end, &size)) || size < 1 || size > end - p) return NULL;
    end = p + size;
    if (!(p = varint(p + 1, end, &number)) || !(p = varint(p, end, &number)) || !(p = sized(p, end, &key))) return NULL;
    return key < length || memcmp(p, prefix, (size_t)length) ? NULL : end;
}

static const char has_only_doc[] =
    "has_only(batch, prefix): True if the bytes are one plain batch in which every key begins with the prefix. False also"
    " for batches that this kernel does not read.";

static PyObject *has_only(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer batch, prefix;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "has_only takes 2 arguments, not %zd", count);
    if (PyObject_GetBuffer(args[0], &batch, PyBUF_SIMPLE) < 0) return NULL;
    if (PyObject_GetBuffer(args[1], &prefix, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&batch);
        return NULL;
    }
    const uint8_t *p = batch.buf, *const end = p + batch.len;
    int has_prefixes = is_usual(p, (size_t)batch.len);
    uint32_t records = has_prefixes ? big32(p + COUNT_AT) : 0;
    for (p += has_prefixes ? HEADER : 0; records && has_prefixes; records--) {
        p = after_record(p, end, prefix.buf, prefix.len);
        has_prefixes = p != NULL;
    }
    has_prefixes = has_prefixes && p == end;
    PyBuffer_Release(&prefix);
    PyBuffer_Release(&batch);
    return PyBool_FromLong(has_prefixes);
}

/* ---- last values ---- */

typedef struct {
    int64_t producer_id, epoch, next_offset, until;
    const uint8_t *types; /* of TYPE bytes each */
    Py_ssize_t types_size;
    PyObject *values, *writers, *writer; /* borrowed */
    PyObject *last; /* the last value, owned: equal ones share one object */
    int64_t newest;
} LastValues;

static int is_kept_type(const LastValues *state, const Field *key) {
    if (!key->bytes || key->size < TYPE) return 0;
    for (Py_ssize_t i = 0; i + TYPE <= state->types_size; i += TYPE)
        if (!memcmp(state->types + i, key->bytes, TYPE)) return 1;
    return 0;
}

static const uint8_t *read_sized(const uint8_t *p, const uint8_t *end, Field *to) {
    int64_t size;
    if (!(p = sized(p, end, &size))) return NULL;
    to->bytes = size < 0 ? NULL : p;
    to->size = size < 0 ? 0 : (Py_ssize_t)size;
    return p + to->size;
}

/* End of the record at `p`; NULL: it is not a valid one. */
static const uint8_t *split_record(const uint8_t *p, const uint8_t *end, Field *key, Field *value, int64_t *offset) {
    int64_t size, timestamp, headers;
    if (!(p = varint(p, end, &size)) || size < 1 || size > end - p) return NULL;
    end = p + size;
    if (!(p = varint(p + 1, end, &timestamp)) || !(p = varint(p, end, offset))) return NULL;
    if (!(p = read_sized(p, end, key)) || !(p = read_sized(p, end, value)) || !(p = varint(p, end, &headers))) return NULL;
    return after_headers(p, end, headers) == end ? end : NULL;
}

/* True if all records of a usual batch are valid, in ascending order, and of kept types. */
static int are_kept(const LastValues *state, const uint8_t *batch, const uint8_t *end) {
    const int64_t last = (int32_t)big32(batch + LAST_DELTA_AT);
    const uint8_t *p = batch + HEADER;
    Field key, value;
    int64_t previous = -1, offset;
    for (uint32_t remaining = big32(batch + COUNT_AT); remaining; remaining--, previous = offset) {
        if (!(p = split_record(p, end, &key, &value, &offset)) || offset <= previous || offset > last) return 0;
        if (!is_kept_type(state, &key)) return 0;
    }
    return p == end;
}

static PyObject *value_object(LastValues *state, const Field *value) {
    char *last = state->last ? PyBytes_AsString(state->last) : NULL;
    if (!last || PyBytes_Size(state->last) != value->size || memcmp(last, value->bytes, (size_t)value->size)) {
        Py_XDECREF(state->last);
        state->last = PyBytes_FromStringAndSize((const char *)value->bytes, value->size);
    }
    return state->last;
}

static int keep(LastValues *state, PyObject *key, const Field *value) {
    if (!key || PyDict_SetItem(state->writers, key, state->writer) < 0) return 0;
    if (!value->bytes) {
        const int is_there = PyDict_Contains(state->values, key);
        return is_there == 0 || (is_there > 0 && PyDict_DelItem(state->values, key) == 0);
    }
    PyObject *object = value_object(state, value);
    return object && PyDict_SetItem(state->values, key, object) == 0;
}

/* Keep the last value of each key of a batch. False: out of memory. */
static int keep_records(LastValues *state, const uint8_t *batch, const uint8_t *end) {
    const uint8_t *p = batch + HEADER;
    Field key, value;
    int64_t offset;
    for (uint32_t remaining = big32(batch + COUNT_AT); remaining; remaining--) {
        p = split_record(p, end, &key, &value, &offset); /* as `are_kept` has read it */
        PyObject *object = PyBytes_FromStringAndSize((const char *)key.bytes, key.size);
        const int is_kept = keep(state, object, &value);
        Py_XDECREF(object);
        if (!is_kept) return 0;
    }
    return 1;
}

/* Take in one batch. 1: done; 0: it is another writer's, or unusual; -1: out of memory. */
static int keep_batch(LastValues *state, const uint8_t *batch, const uint8_t *end) {
    const int64_t base = (int64_t)big64(batch), last = (int32_t)big32(batch + LAST_DELTA_AT);
    if (base < 0 || last < 0 || base > INT64_MAX - 1 - last || base > state->until) return 0;
    if (base + last < state->next_offset) return 1; /* taken in before */
    if ((int64_t)big64(batch + PRODUCER_ID_AT) != state->producer_id) return 0;
    if ((int16_t)(batch[EPOCH_AT] << 8 | batch[EPOCH_AT + 1]) != state->epoch) return 0;
    if (!is_usual(batch, (size_t)(end - batch)) || !are_kept(state, batch, end)) return 0;
    if (!keep_records(state, batch, end)) return -1;
    const int64_t newest = (int64_t)big64(batch + NEWEST_AT);
    if (newest >= 0) state->newest = newest;
    state->next_offset = base + last + 1;
    return 1;
}

/* Position after the batches that were taken in, or -1. */
static Py_ssize_t keep_batches(LastValues *state, const Py_buffer *data, Py_ssize_t start, Py_ssize_t stop) {
    const uint8_t *const begin = data->buf;
    Py_ssize_t at = start;
    while (at < stop && data->len - at >= HEADER) {
        const int64_t size = (int64_t)(int32_t)big32(begin + at + 8) + LOG_OVERHEAD;
        if (size < HEADER || size > data->len - at) break;
        const int outcome = keep_batch(state, begin + at, begin + at + size);
        if (outcome < 0) return -1;
        if (!outcome) break;
        at += (Py_ssize_t)size;
    }
    return at;
}

static const char keep_last_doc[] =
    "keep_last(data, start, stop, next_offset, until, types, values, writers, writer): take in batches from start, until one"
    " ends at stop or later. Stop before one of another writer (producer id, epoch), with other types of keys, or unusual."
    " Return the position, the next offset, and the newest timestamp or -1.";

static PyObject *keep_last(PyObject *module, PyObject *args) {
    (void)module;
    LastValues state = {.newest = -1};
    Py_buffer data, types;
    Py_ssize_t start, stop;
    long long next_offset, until, producer_id;
    int epoch;
    if (!PyArg_ParseTuple(args, "y*nnLLy*O!O!O!", &data, &start, &stop, &next_offset, &until, &types, &PyDict_Type,
                          &state.values, &PyDict_Type, &state.writers, &PyTuple_Type, &state.writer)) return NULL;
    PyObject *result = NULL;
    if (PyArg_ParseTuple(state.writer, "Li", &producer_id, &epoch)) {
        state.producer_id = producer_id, state.epoch = epoch, state.next_offset = next_offset, state.until = until;
        state.types = types.buf, state.types_size = types.len;
        const Py_ssize_t at = start < 0 ? start : keep_batches(&state, &data, start, stop);
        if (at >= 0) result = Py_BuildValue("nLL", at, (long long)state.next_offset, (long long)state.newest);
        else if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "start is negative");
    }
    Py_XDECREF(state.last);
    PyBuffer_Release(&types);
    PyBuffer_Release(&data);
    return result;
}

static int prepare(PyObject *module) {
    fill_tables();
    detect_processor(ALL);
    return PyModule_AddIntConstant(module, "VERSION", VERSION);
}

static PyMethodDef functions[] = {
    {"build", (PyCFunction)(void (*)(void))build, METH_FASTCALL, build_doc},
    {"has_only", (PyCFunction)(void (*)(void))has_only, METH_FASTCALL, has_only_doc},
    {"keep_last", keep_last, METH_VARARGS, keep_last_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kafka_share_proxy.wire.records._small_batches",
    .m_doc = "Small record batches, written in one pass.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__small_batches(void) { return PyModuleDef_Init(&definition); }
