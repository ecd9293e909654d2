/* Locate all records of record batches of magic 2 in one pass: positions of keys, values and headers as columns of numbers.
 * Build objects from a range of records, and sample keys. Input: the records of one batch, or a run of batches as received,
 * as producers without linger write a batch for each record.
 *
 * The rules are those of the Python fallbacks in record_positions.py, record_runs.py and key_samples.py; tests and a fuzzer
 * compare them. No read leaves the bytes: every length is compared with the remaining bytes before it is used, and every
 * position is checked again before it is used. Limited API of CPython 3.11. With RECORD_POSITIONS_CORE defined it is plain
 * C, for a driver under sanitizers.
 */
#ifndef RECORD_POSITIONS_CORE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#endif

#include "checksum.h"
#include "murmur2.h"
#include "murmur64.h"

enum { RECORD_MIN = 7 }; /* bytes of the smallest record: seven varints and attributes of one byte each */

/* The columns, in the order of their bytes: two of int64, then six of int32. */
enum { OFFSET, TIMESTAMP, WIDE_COLUMNS };
enum { KEY_START, KEY_SIZE, VALUE_START, VALUE_SIZE, HEADERS_START, HEADERS_COUNT, NARROW_COLUMNS };
enum { ROW = 8 * WIDE_COLUMNS + 4 * NARROW_COLUMNS };

typedef struct {
    uint8_t *wide[WIDE_COLUMNS], *narrow[NARROW_COLUMNS];
} Columns;

static void lay_out(Columns *columns, uint8_t *memory, size_t rows) {
    for (int i = 0; i < WIDE_COLUMNS; i++, memory += 8 * rows) columns->wide[i] = memory;
    for (int i = 0; i < NARROW_COLUMNS; i++, memory += 4 * rows) columns->narrow[i] = memory;
}

INLINE void put64(uint8_t *column, size_t row, int64_t value) { memcpy(column + 8 * row, &value, 8); }
INLINE void put32(uint8_t *column, size_t row, int64_t value) { int32_t v = (int32_t)value; memcpy(column + 4 * row, &v, 4); }

typedef struct {
    const uint8_t *bytes, *origin; /* origin: from where positions count */
    size_t size;
    uint32_t count; /* records, as the header of the batch says */
    int64_t base_offset, offsets, base_timestamp; /* offsets: largest delta that the batch has */
    int64_t append_time;
    int has_append_time;
    uint32_t at;    /* index of the record being read */
    int64_t last_offset; /* of the last located record */
    size_t rows; /* rows in the columns */
} Area;

/* Locate all records. Return NULL, or what is wrong with record `at`. The columns have room for `count` more rows. A record
 * whose offset is not higher than all before it is ignored. */
static const char *locate_all(Area *of, const Columns *to) {
    const uint8_t *const origin = of->origin, *const area_end = of->bytes + of->size, *p = of->bytes;
    const int64_t base_offset = of->base_offset;
    int64_t last_offset = of->last_offset;
    size_t row = of->rows;
    for (of->at = 0; of->at < of->count; of->at++) {
        int64_t length, timestamp, delta, key, value, headers;
        if (!(p = varint(p, area_end, &length)) || length < 1 || length > area_end - p) return "its length is not positive, or exceeds the remaining bytes";
        const uint8_t *const end = p + length;
        if (!(p = varint(p + 1, end, &timestamp))) return "its timestamp does not fit into it";
        if (!(p = varint(p, end, &delta)) || delta < 0 || delta > of->offsets) return "its offset is not within the batch";
        if (!(p = sized(p, end, &key))) return "its key does not fit into it";
        const uint8_t *const key_start = p;
        p += key < 0 ? 0 : key;
        if (!(p = sized(p, end, &value))) return "its value does not fit into it";
        const uint8_t *const value_start = p;
        p += value < 0 ? 0 : value;
        if (!(p = varint(p, end, &headers)) || after_headers(p, end, headers) != end) return "its headers do not end where it ends";
        if (LIKELY(base_offset + delta > last_offset)) {
            last_offset = base_offset + delta;
            put64(to->wide[OFFSET], row, last_offset);
            put64(to->wide[TIMESTAMP], row, of->has_append_time ? of->append_time
                : (int64_t)((uint64_t)of->base_timestamp + (uint64_t)timestamp));
            put32(to->narrow[KEY_START], row, key_start - origin);
            put32(to->narrow[KEY_SIZE], row, key);
            put32(to->narrow[VALUE_START], row, value_start - origin);
            put32(to->narrow[VALUE_SIZE], row, value);
            put32(to->narrow[HEADERS_START], row, p - origin);
            put32(to->narrow[HEADERS_COUNT], row, headers);
            row++;
        }
        p = end;
    }
    if (p != area_end) return "bytes follow the last record";
    of->last_offset = last_offset;
    of->rows = row;
    return NULL;
}

static int has_offsets(const Area *of) {
    return of->base_offset >= 0 && of->offsets >= 0 && of->offsets <= INT32_MAX && of->base_offset <= INT64_MAX - of->offsets;
}
static int has_room(const Area *of) { return (uint64_t)of->count * RECORD_MIN <= of->size; }

/* ---- batches as received ---- */

enum { HEADER = 61, LOG_OVERHEAD = 12, MAGIC_AT = 16, CRC_AT = 17, CRC_FROM = 21, ATTRIBUTES_AT = 22, DELTA_AT = 23 };
enum { BASE_TIMESTAMP_AT = 27, MAX_TIMESTAMP_AT = 35, COUNT_AT = 57, COMPRESSION_MASK = 7, TIMESTAMP_TYPE_MASK = 8 };

typedef struct {
    const uint8_t *bytes, *end;
    int is_checked; /* true if checksums are compared */
    Area area;
} Run;

/* True if there is a complete batch at p. Reads its header into the area. */
static int read_header(Run *of, const uint8_t *p) {
    Area *area = &of->area;
    if (of->end - p < HEADER || p[MAGIC_AT] != 2) return 0;
    const int64_t size = (int64_t)(int32_t)big32(p + 8) + LOG_OVERHEAD;
    if (size < HEADER || size > of->end - p || (int32_t)big32(p + COUNT_AT) < 0) return 0;
    area->bytes = p + HEADER;
    area->size = (size_t)(size - HEADER);
    area->base_offset = (int64_t)big64(p);
    area->offsets = (int32_t)big32(p + DELTA_AT);
    area->count = big32(p + COUNT_AT);
    area->base_timestamp = (int64_t)big64(p + BASE_TIMESTAMP_AT);
    area->append_time = (int64_t)big64(p + MAX_TIMESTAMP_AT);
    area->has_append_time = (p[ATTRIBUTES_AT] & TIMESTAMP_TYPE_MASK) != 0;
    return has_offsets(area);
}

/* True if there is a complete batch at p with uncompressed records. */
static int read_batch(Run *of, const uint8_t *p) {
    return read_header(of, p) && !(p[ATTRIBUTES_AT] & COMPRESSION_MASK);
}

/* Return the maximum number of rows that the columns need. */
static size_t rows_of(Run *of, const uint8_t *p) {
    size_t rows = 0;
    for (; read_batch(of, p) && has_room(&of->area); p = of->area.bytes + of->area.size) rows += of->area.count;
    return rows;
}

enum { ALL_RIGHT = 0, NO_BATCH = 1, WRONG_CHECKSUM = 2, NO_ROOM = 3, WRONG_RECORD = 4 };

/* Locate the records of all batches from p on, in columns of `rows` rows. Return the position after the last valid batch.
 * `fault` gets the reason to stop, and `wrong` the fault of a record. If the bytes change meanwhile, the records differ, but
 * no access is out of bounds. */
static const uint8_t *locate_run(Run *of, const Columns *to, size_t rows, const uint8_t *p, int *fault, const char **wrong) {
    Area *const area = &of->area;
    for (*fault = ALL_RIGHT; p < of->end; p = area->bytes + area->size) {
        if (!read_batch(of, p)) { *fault = NO_BATCH; break; }
        const uint8_t *const end = area->bytes + area->size;
        if (of->is_checked && crc32c(0, p + CRC_FROM, (size_t)(end - p) - CRC_FROM) != big32(p + CRC_AT)) { *fault = WRONG_CHECKSUM; break; }
        if (!has_room(area) || area->count > rows - area->rows) { *fault = NO_ROOM; break; }
        if ((*wrong = locate_all(area, to))) { *fault = WRONG_RECORD; break; }
    }
    return p;
}

/* Copy the first rows of each column to columns of `rows` rows. */
static void shorten(const Columns *from, const Columns *to, size_t rows) {
    for (int i = 0; i < WIDE_COLUMNS; i++) memcpy(to->wide[i], from->wide[i], 8 * rows);
    for (int i = 0; i < NARROW_COLUMNS; i++) memcpy(to->narrow[i], from->narrow[i], 4 * rows);
}

/* ---- samples of keys ---- */

enum { SAMPLE = 8, BUCKETS = 1 << 12, BUCKET_SHIFT = 20, KEY_MAX = 256 }; /* a sample: hash and bytes of key and value, uint32 each */

typedef struct {
    uint32_t first, every; /* which records are sampled */
    uint8_t *keyed, *null; /* samples of records with a key, and without */
    size_t keyed_rows, null_rows;
    const uint8_t *key; /* the key of the first row of `keyed`, if it has at most KEY_MAX bytes; else NULL */
    size_t key_size;
} Sampling;

INLINE uint32_t hash_of_offset(int64_t offset) {
    uint8_t number[8];
    for (int i = 0; i < 8; i++) number[i] = (uint8_t)((uint64_t)offset >> (56 - 8 * i));
    return murmur2(number, 8);
}

INLINE void put_sample(uint8_t *to, size_t *rows, uint32_t hash, int64_t size) {
    const uint32_t bytes = (uint32_t)size;
    memcpy(to + SAMPLE * *rows, &hash, 4);
    memcpy(to + SAMPLE * *rows + 4, &bytes, 4);
    ++*rows;
}

static size_t samples_max(const Area *of, const Sampling *to) {
    return of->count > to->first ? (of->count - to->first - 1) / to->every + 1 : 0;
}

/* Sample keys. Return NULL, or what is wrong with record `at`. Only the length is read of records that are not sampled, and
 * nothing after the last sample. */
static const char *sample_keys(Area *of, Sampling *to) {
    const uint8_t *const area_end = of->bytes + of->size, *p = of->bytes;
    uint64_t next = to->first;
    const uint64_t end_of_samples = to->first + (uint64_t)samples_max(of, to) * to->every;
    for (of->at = 0; of->at < of->count && next < end_of_samples; of->at++) {
        int64_t length, timestamp, delta, key, value;
        if (!(p = varint(p, area_end, &length)) || length < 1 || length > area_end - p) return "its length is not positive, or exceeds the remaining bytes";
        const uint8_t *const end = p + length;
        if (of->at == next) {
            next += to->every;
            if (!(p = varint(p + 1, end, &timestamp))) return "its timestamp does not fit into it";
            if (!(p = varint(p, end, &delta)) || delta < 0 || delta > INT32_MAX) return "its offset is not within the batch";
            if (!(p = sized(p, end, &key))) return "its key does not fit into it";
            const uint8_t *const key_start = p;
            p += key < 0 ? 0 : key;
            if (!(p = sized(p, end, &value))) return "its value does not fit into it";
            const int64_t size = (key < 0 ? 0 : key) + (value < 0 ? 0 : value);
            if (key >= 0 && key <= KEY_MAX && !to->keyed_rows) {
                to->key = key_start;
                to->key_size = (size_t)key;
            }
            if (LIKELY(key >= 0)) put_sample(to->keyed, &to->keyed_rows, murmur2(key_start, (size_t)key), size);
            else put_sample(to->null, &to->null_rows, hash_of_offset((int64_t)((uint64_t)of->base_offset + (uint64_t)delta)), size);
        }
        p = end;
    }
    return NULL;
}

/* Hash the key of each row, or its offset if it has none. Return 0 if a key is not within the bytes. */
static int hash_keys(const uint8_t *bytes, int64_t size, const Columns *from, size_t first, size_t last, uint8_t *to) {
    for (size_t row = first; row < last; row++, to += 4) {
        const int64_t start = (int32_t)native32(from->narrow[KEY_START] + 4 * row), key = (int32_t)native32(from->narrow[KEY_SIZE] + 4 * row);
        if (key >= 0 && (start < 0 || start > size || key > size - start)) return 0;
        const uint32_t hash = LIKELY(key >= 0) ? murmur2(bytes + start, (size_t)key) : hash_of_offset((int64_t)native64(from->wide[OFFSET] + 8 * row));
        memcpy(to, &hash, 4);
    }
    return 1;
}

/* Write offset and 64-bit hash of each row with a key into two arrays. Return the number of such rows; -1: a key is not
 * within the bytes. */
static int64_t hash_order_keys(const uint8_t *bytes, int64_t size, const Columns *from, size_t first, size_t last, uint8_t *offsets, uint8_t *hashes) {
    int64_t rows = 0;
    for (size_t row = first; row < last; row++) {
        const int64_t start = (int32_t)native32(from->narrow[KEY_START] + 4 * row), key = (int32_t)native32(from->narrow[KEY_SIZE] + 4 * row);
        if (key < 0) continue;
        if (start < 0 || start > size || key > size - start) return -1;
        const uint64_t hash = murmur64(bytes + start, (size_t)key);
        memcpy(offsets + 8 * rows, from->wide[OFFSET] + 8 * row, 8);
        memcpy(hashes + 8 * rows++, &hash, 8);
    }
    return rows;
}

/* Add `weight` for each sample to the records of its bucket, and `weight` times its bytes; both wrap around. Return the
 * number of pairs of samples in the same bucket. `samples_in_bucket` has BUCKETS zeros, before and afterwards. */
static uint64_t tally_samples(const uint8_t *samples, size_t rows, uint32_t weight, uint8_t *records, uint8_t *bytes, uint32_t *samples_in_bucket) {
    uint64_t pairs = 0;
    for (size_t row = 0; row < rows; row++) {
        const size_t bucket = native32(samples + SAMPLE * row) >> BUCKET_SHIFT;
        const uint32_t count = native32(records + 4 * bucket) + weight;
        const uint64_t size = native64(bytes + 8 * bucket) + (uint64_t)native32(samples + SAMPLE * row + 4) * weight;
        memcpy(records + 4 * bucket, &count, 4);
        memcpy(bytes + 8 * bucket, &size, 8);
        pairs += samples_in_bucket[bucket]++;
    }
    for (size_t row = 0; row < rows; row++) samples_in_bucket[native32(samples + SAMPLE * row) >> BUCKET_SHIFT] = 0;
    return pairs;
}

/* ---- Python ---- */
#ifndef RECORD_POSITIONS_CORE

enum { VERSION = 6, RELEASE_FROM = 32 << 10 };

static PyObject *shortened(PyObject *columns_bytes, const Columns *columns, size_t rows) { /* steals columns_bytes */
    Columns shorter_columns;
    PyObject *shorter = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(rows * ROW));
    if (shorter) {
        lay_out(&shorter_columns, (uint8_t *)PyBytes_AsString(shorter), rows);
        shorten(columns, &shorter_columns, rows);
    }
    Py_DECREF(columns_bytes);
    return shorter;
}

static PyObject *locate_in(Area *area) {
    Columns columns;
    if (area->size > INT32_MAX) return PyErr_Format(PyExc_ValueError, "records of more than 2 GiB");
    if (!has_offsets(area)) return PyErr_Format(PyExc_ValueError, "offsets that no batch has");
    if (!has_room(area)) return PyErr_Format(PyExc_ValueError, "%u records cannot be in %zu bytes", (unsigned)area->count, area->size);
    PyObject *positions = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((size_t)area->count * ROW));
    if (!positions) return NULL;
    lay_out(&columns, (uint8_t *)PyBytes_AsString(positions), area->count);

    PyThreadState *state = NULL;
    const int release = area->size >= RELEASE_FROM; /* below, waiting for the GIL costs more */
    if (release) state = PyEval_SaveThread();
    const char *const wrong = locate_all(area, &columns);
    if (release) PyEval_RestoreThread(state);
    if (wrong) {
        Py_DECREF(positions);
        return PyErr_Format(PyExc_ValueError, "record %u (from 0): %s", (unsigned)area->at, wrong);
    }
    return area->rows == area->count ? positions : shortened(positions, &columns, area->rows);
}

PyDoc_STRVAR(find_doc, "find(area, count, base_offset, last_offset, base_timestamp, append_time) -> columns; raises ValueError");

static PyObject *find(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer data;
    if (count != 6) return PyErr_Format(PyExc_TypeError, "find takes 6 arguments, not %zd", count);
    const long records = PyLong_AsLong(args[1]);
    Area area = {.base_offset = PyLong_AsLongLong(args[2]), .has_append_time = !Py_IsNone(args[5])};
    const int64_t last_offset = PyLong_AsLongLong(args[3]);
    area.base_timestamp = PyLong_AsLongLong(args[4]);
    if (area.has_append_time) area.append_time = PyLong_AsLongLong(args[5]);
    if (PyErr_Occurred()) return NULL;
    if (records < 0 || records > INT32_MAX || last_offset < area.base_offset)
        return PyErr_Format(PyExc_ValueError, "offsets or a count that no batch has");
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0) return NULL;
    area.bytes = area.origin = data.buf;
    area.last_offset = -1;
    area.size = (size_t)data.len;
    area.count = (uint32_t)records;
    area.offsets = (int64_t)((uint64_t)last_offset - (uint64_t)area.base_offset);
    PyObject *positions = locate_in(&area);
    PyBuffer_Release(&data);
    return positions;
}

/* Return a new str, or None if there is no fault. */
static PyObject *fault_text(const Run *of, const uint8_t *p, int fault, const char *wrong) {
    const long long offset = of->end - p < 8 ? -1 : (long long)big64(p);
    switch (fault) {
    case ALL_RIGHT: return Py_NewRef(Py_None);
    case NO_BATCH: return PyUnicode_FromFormat("there is no uncompressed record batch at byte %zd", (Py_ssize_t)(p - of->bytes));
    case WRONG_CHECKSUM: return PyUnicode_FromFormat("the checksum of the record batch at offset %lld is wrong", offset);
    case NO_ROOM: return PyUnicode_FromFormat("the record batch at offset %lld: %u records cannot be in %zu bytes", offset,
                                              (unsigned)of->area.count, of->area.size);
    default: return PyUnicode_FromFormat("the record batch at offset %lld: record %u (from 0): %s", offset, (unsigned)of->area.at, wrong);
    }
}

static PyObject *locate_in_run(Run *of, const uint8_t *start) {
    Columns columns;
    const size_t rows = rows_of(of, start);
    PyObject *positions = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(rows * ROW));
    if (!positions) return NULL;
    lay_out(&columns, (uint8_t *)PyBytes_AsString(positions), rows);

    int fault;
    const char *wrong = NULL;
    PyThreadState *state = NULL;
    const int release = of->end - start >= RELEASE_FROM;
    if (release) state = PyEval_SaveThread();
    const uint8_t *const run_end = locate_run(of, &columns, rows, start, &fault, &wrong);
    if (release) PyEval_RestoreThread(state);
    if (of->area.rows < rows && !(positions = shortened(positions, &columns, of->area.rows))) return NULL;
    PyObject *text = fault_text(of, run_end, fault, wrong);
    if (text) return Py_BuildValue("(NnN)", positions, (Py_ssize_t)(run_end - of->bytes), text);
    Py_DECREF(positions);
    return NULL;
}

PyDoc_STRVAR(run_doc, "find_run(data, start, end, is_checked) -> (columns, end of the last valid batch, what is wrong or None)");

static PyObject *run(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer data;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "find_run takes 4 arguments, not %zd", count);
    const Py_ssize_t start = PyLong_AsSsize_t(args[1]), end = PyLong_AsSsize_t(args[2]);
    const int is_checked = PyObject_IsTrue(args[3]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *result;
    if (start < 0 || end < start || end > data.len || end > INT32_MAX) {
        result = PyErr_Format(PyExc_ValueError, "no such range of bytes, or more than 2 GiB");
    } else {
        Run of = {.bytes = data.buf, .end = (const uint8_t *)data.buf + end, .is_checked = is_checked, .area = {.last_offset = -1}};
        of.area.origin = of.bytes;
        result = locate_in_run(&of, of.bytes + start);
    }
    PyBuffer_Release(&data);
    return result;
}

/* Source and types of the records to build. */
typedef struct {
    const uint8_t *bytes;
    int64_t size;
    Columns columns;
    PyTypeObject *type;
    PyObject *timestamp_type, *headers_type, *no_headers;
    PyObject *origin; /* the first fields of every record, a tuple */
    Py_ssize_t origins;
} Builder;

enum { KEY, VALUE, HEADERS, TIME, PLACE, TIME_TYPE, FIELDS };

INLINE int64_t get64(const uint8_t *column, size_t row) { return (int64_t)native64(column + 8 * row); }
INLINE int64_t get32(const uint8_t *column, size_t row) { return (int32_t)native32(column + 4 * row); }

static PyObject *outside(void) { return PyErr_Format(PyExc_ValueError, "positions that are not of these bytes"); }

static PyObject *content(const Builder *with, int64_t start, int64_t size) {
    if (size < 0) return Py_NewRef(Py_None);
    if (start < 0 || start > with->size || size > with->size - start) return outside();
    return PyBytes_FromStringAndSize((const char *)with->bytes + start, (Py_ssize_t)size);
}

static PyObject *headers_at(const Builder *with, int64_t start, int64_t count) {
    if (count == 0) return Py_NewRef(with->no_headers);
    if (start < 0 || start > with->size) return outside();
    const uint8_t *const begin = with->bytes + start, *const end = after_headers(begin, with->bytes + with->size, count);
    if (!end) return outside();
    return PyObject_CallFunction(with->headers_type, "y#n", (const char *)begin, (Py_ssize_t)(end - begin), (Py_ssize_t)count);
}

static PyObject *field(const Builder *with, size_t row, int which) {
    const Columns *from = &with->columns;
    switch (which) {
    case KEY: return content(with, get32(from->narrow[KEY_START], row), get32(from->narrow[KEY_SIZE], row));
    case VALUE: return content(with, get32(from->narrow[VALUE_START], row), get32(from->narrow[VALUE_SIZE], row));
    case HEADERS: return headers_at(with, get32(from->narrow[HEADERS_START], row), get32(from->narrow[HEADERS_COUNT], row));
    case TIME: return PyLong_FromLongLong(get64(from->wide[TIMESTAMP], row));
    case PLACE: return PyLong_FromLongLong(get64(from->wide[OFFSET], row));
    default: return Py_NewRef(with->timestamp_type);
    }
}

/* Build a record. Without headers it contains nothing that could refer to it, thus the garbage collector need not track it. */
static PyObject *built(const Builder *with, size_t row) {
    PyObject *record = PyType_GenericAlloc(with->type, with->origins + FIELDS);
    for (Py_ssize_t i = 0; record && i < with->origins; i++) PyTuple_SetItem(record, i, Py_NewRef(PyTuple_GetItem(with->origin, i)));
    for (int i = 0; record && i < FIELDS; i++) {
        PyObject *value = field(with, row, i);
        if (value) PyTuple_SetItem(record, with->origins + i, value); /* steals it */
        else Py_CLEAR(record);
    }
    if (record && get32(with->columns.narrow[HEADERS_COUNT], row) == 0) PyObject_GC_UnTrack(record);
    return record;
}

static PyObject *all_built(const Builder *with, Py_ssize_t first, Py_ssize_t last) {
    PyObject *records = PyList_New(last - first);
    for (Py_ssize_t row = first; records && row < last; row++) {
        PyObject *record = built(with, (size_t)row);
        if (!record) {
            Py_DECREF(records);
            return NULL;
        }
        PyList_SetItem(records, row - first, record);
    }
    return records;
}

/* Fill the builder from the arguments of `build` and `records`, which it borrows, and get the buffer of the area. */
static int prepared(Builder *with, Py_buffer *data, PyObject *const *args, Py_ssize_t count, Py_ssize_t *first,
                    Py_ssize_t *last) {
    char *columns;
    Py_ssize_t size;
    if (count != 8 || !PyType_Check(args[4]) || !PyType_IsSubtype((PyTypeObject *)args[4], &PyTuple_Type)
        || !PyTuple_Check(args[7])) {
        PyErr_SetString(PyExc_TypeError, count != 8 ? "8 arguments are needed" : "records are tuples");
        return 0;
    }
    *first = PyLong_AsSsize_t(args[2]);
    *last = PyLong_AsSsize_t(args[3]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(args[1], &columns, &size) < 0) return 0;
    if (size % ROW || *first < 0 || *last < *first || *last > size / ROW) {
        PyErr_SetString(PyExc_ValueError, "no such rows");
        return 0;
    }
    PyObject *no_headers = PyTuple_New(0);
    if (!no_headers || PyObject_GetBuffer(args[0], data, PyBUF_SIMPLE) < 0) {
        Py_XDECREF(no_headers);
        return 0;
    }
    *with = (Builder){.bytes = data->buf, .size = data->len, .type = (PyTypeObject *)args[4], .timestamp_type = args[5],
                      .headers_type = args[6], .no_headers = no_headers, .origin = args[7],
                      .origins = PyTuple_Size(args[7])};
    lay_out(&with->columns, (uint8_t *)columns, (size_t)(size / ROW));
    return 1;
}

PyDoc_STRVAR(build_doc,
    "build(area, columns, first, last, record_type, timestamp_type, headers_type, origin) -> list of records; raises ValueError");

static PyObject *build(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer data;
    Builder with;
    Py_ssize_t first, last;
    if (!prepared(&with, &data, args, count, &first, &last)) return NULL;
    PyObject *records = all_built(&with, first, last);
    PyBuffer_Release(&data);
    Py_DECREF(with.no_headers);
    return records;
}

/* ---- iterators ---- */

/* Builds each record when it is requested: a record that is dropped before the next one leaves it its memory, which is
 * still in the processor's cache. */
typedef struct Records {
    PyObject_HEAD
    Builder with; /* owns its references */
    PyObject *columns;
    Py_buffer data;
    Py_ssize_t next, last;
    struct Records *after; /* the iterator to continue with, or NULL; nothing else refers to it */
} Records;

enum { RECORDS_CONTENT = sizeof(Records) - sizeof(PyObject) };
INLINE void *content_of(Records *self) { return (char *)self + sizeof(PyObject); }

/* Asynchronous iterator for `async for` without a coroutine per record: it returns those of `current` while `position.moves`
 * is `moves`. Otherwise it awaits the result of `slow()`, which calls `begin`. */
typedef struct {
    PyObject_HEAD
    PyObject *slow, *current, *position, *moves;
    PyObject *record; /* the record being returned */
} HandedOut;

typedef struct {
    PyTypeObject *records, *handed_out;
    PyObject *moves_name;
} State;

static void drop_records(Records *self) {
    if (self->data.obj) PyBuffer_Release(&self->data);
    Py_XDECREF(self->columns);
    Py_XDECREF((PyObject *)self->with.type);
    Py_XDECREF(self->with.timestamp_type);
    Py_XDECREF(self->with.headers_type);
    Py_XDECREF(self->with.no_headers);
    Py_XDECREF(self->with.origin);
    memset(content_of(self), 0, RECORDS_CONTENT);
}

/* Replace this iterator by the one after it. Returns 0 if there is none. */
static int continued(Records *self) {
    Records *after = self->after;
    if (!after) return 0;
    drop_records(self);
    memcpy(content_of(self), content_of(after), RECORDS_CONTENT);
    memset(content_of(after), 0, RECORDS_CONTENT);
    Py_DECREF((PyObject *)after);
    return 1;
}

static void free_records(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    while (continued((Records *)object)) continue;
    drop_records((Records *)object);
    PyObject_Free(object);
    Py_DECREF((PyObject *)type);
}

static PyObject *next_record(PyObject *object) {
    Records *self = (Records *)object;
    while (self->next == self->last && continued(self)) continue;
    return self->next < self->last ? built(&self->with, (size_t)self->next++) : NULL;
}

static PyObject *records_remaining(PyObject *object, PyObject *none) {
    Py_ssize_t remaining = 0;
    (void)none;
    for (const Records *self = (Records *)object; self; self = self->after) remaining += self->last - self->next;
    return PyLong_FromSsize_t(remaining);
}

PyDoc_STRVAR(records_doc,
    "records(as build, after) -> iterator of the records, each built when it is requested, and then of those of "
    "`after`, another such iterator, which it empties, or None; raises ValueError");

static PyObject *records(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const State *state = PyModule_GetState(module);
    if (count != 9) return PyErr_Format(PyExc_TypeError, "9 arguments are needed");
    Records *continuation = Py_IsNone(args[8]) ? NULL : (Records *)args[8];
    if (continuation && Py_TYPE(args[8]) != state->records) return PyErr_Format(PyExc_TypeError, "no such iterator");
    Records *self = PyObject_New(Records, state->records);
    Records *after = continuation && self ? PyObject_New(Records, state->records) : NULL;
    if (self) memset(content_of(self), 0, RECORDS_CONTENT);
    if (after) memset(content_of(after), 0, RECORDS_CONTENT);
    if (!self || (continuation && !after) || !prepared(&self->with, &self->data, args, 8, &self->next, &self->last)) {
        if (self) memset(content_of(self), 0, RECORDS_CONTENT); /* it owns nothing yet */
        Py_XDECREF((PyObject *)self);
        Py_XDECREF((PyObject *)after);
        return NULL;
    }
    self->columns = Py_NewRef(args[1]);
    for (int i = 4; i < 8; i++) Py_INCREF(args[i]);
    if (continuation) { /* its content moves: no other object can refer to it, and no reference cycle can arise */
        memcpy(content_of(after), content_of(continuation), RECORDS_CONTENT);
        memset(content_of(continuation), 0, RECORDS_CONTENT);
        self->after = after;
    }
    return (PyObject *)self;
}

static PyMethodDef records_methods[] = {{"__length_hint__", records_remaining, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyType_Slot records_slots[] = {
    {Py_tp_dealloc, (void *)free_records}, {Py_tp_iter, (void *)PyObject_SelfIter},
    {Py_tp_iternext, (void *)next_record}, {Py_tp_methods, records_methods}, {0, NULL}};
static PyType_Spec records_spec = {"kafka_share_proxy.wire.records._record_positions.Records", sizeof(Records), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, records_slots};

static int visit_handed_out(PyObject *object, visitproc visit, void *arg) {
    HandedOut *self = (HandedOut *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->slow);
    Py_VISIT(self->current);
    Py_VISIT(self->position);
    Py_VISIT(self->moves);
    Py_VISIT(self->record);
    return 0;
}

static int clear_handed_out(PyObject *object) {
    HandedOut *self = (HandedOut *)object;
    Py_CLEAR(self->slow);
    Py_CLEAR(self->current);
    Py_CLEAR(self->position);
    Py_CLEAR(self->moves);
    Py_CLEAR(self->record);
    return 0;
}

static void free_handed_out(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    clear_handed_out(object);
    PyObject_GC_Del(object);
    Py_DECREF((PyObject *)type);
}

static void put(PyObject **to, PyObject *value) { PyObject *previous = *to; *to = Py_NewRef(value); Py_XDECREF(previous); }

static PyObject *begin(PyObject *object, PyObject *args) {
    HandedOut *self = (HandedOut *)object;
    PyObject *current, *position, *moves;
    if (!PyArg_ParseTuple(args, "OOO", &current, &position, &moves)) return NULL;
    if (!PyIter_Check(current)) return PyErr_Format(PyExc_TypeError, "the records are no iterator");
    put(&self->current, current);
    put(&self->position, position);
    put(&self->moves, moves);
    return Py_NewRef(Py_None);
}

/* Get the next record. 1: done; 0: `slow` must get it; -1: exception. */
static int take_record(HandedOut *self) {
    if (!self->current) return 0;
    const State *state = PyType_GetModuleState(Py_TYPE((PyObject *)self));
    PyObject *moves = PyObject_GetAttr(self->position, state->moves_name);
    if (!moves) return -1;
    const int is_same = moves == self->moves ? 1 : PyObject_RichCompareBool(moves, self->moves, Py_EQ);
    Py_DECREF(moves);
    if (is_same <= 0) return is_same;
    PyObject *current = Py_NewRef(self->current), *record = PyIter_Next(current);
    Py_DECREF(current);
    if (!record) return PyErr_Occurred() ? -1 : 0;
    PyObject *previous = self->record;
    self->record = record;
    Py_XDECREF(previous);
    return 1;
}

static PyObject *wait_for_record(PyObject *object) {
    HandedOut *self = (HandedOut *)object;
    const int taken = take_record(self);
    if (taken) return taken < 0 ? NULL : Py_NewRef(object);
    PyObject *coroutine = PyObject_CallNoArgs(self->slow);
    PyObject *iterator = coroutine ? PyObject_CallMethod(coroutine, "__await__", NULL) : NULL;
    Py_XDECREF(coroutine);
    return iterator;
}

static PyObject *taken_record(HandedOut *self) {
    PyObject *record = self->record;
    self->record = NULL;
    return record ? record : PyErr_Format(PyExc_RuntimeError, "each record is awaited once");
}

static PySendResult send_record(PyObject *object, PyObject *value, PyObject **result) {
    (void)value;
    *result = taken_record((HandedOut *)object);
    return *result ? PYGEN_RETURN : PYGEN_ERROR;
}

/* As `send_record`, but by an exception: for tracers and other callers in Python 3.11. */
static PyObject *raise_record(PyObject *object) {
    PyObject *record = taken_record((HandedOut *)object);
    PyObject *stop = record ? PyObject_CallFunctionObjArgs(PyExc_StopIteration, record, NULL) : NULL;
    Py_XDECREF(record);
    if (stop) PyErr_SetObject(PyExc_StopIteration, stop);
    Py_XDECREF(stop);
    return NULL;
}

PyDoc_STRVAR(handed_out_doc,
    "handed_out(slow) -> asynchronous iterator of records; `slow` is called for those that are not ready");

static PyObject *handed_out(PyObject *module, PyObject *slow) {
    const State *state = PyModule_GetState(module);
    HandedOut *self = PyObject_GC_New(HandedOut, state->handed_out);
    if (!self) return NULL;
    self->current = self->position = self->moves = self->record = NULL;
    self->slow = Py_NewRef(slow);
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

static PyMethodDef handed_out_methods[] = {{"begin", begin, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyType_Slot handed_out_slots[] = {
    {Py_tp_dealloc, (void *)free_handed_out}, {Py_tp_traverse, (void *)visit_handed_out},
    {Py_tp_clear, (void *)clear_handed_out}, {Py_tp_iternext, (void *)raise_record},
    {Py_am_aiter, (void *)PyObject_SelfIter}, {Py_am_anext, (void *)PyObject_SelfIter},
    {Py_am_await, (void *)wait_for_record}, {Py_am_send, (void *)send_record},
    {Py_tp_methods, handed_out_methods}, {0, NULL}};
static PyType_Spec handed_out_spec = {
    "kafka_share_proxy.wire.records._record_positions.HandedOut", sizeof(HandedOut), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, handed_out_slots};

/* ---- one batch ---- */

/* Check header and checksum of the batch at p. Return its records, decompressed; NULL: exception. */
static PyObject *checked_payload(Run *of, PyObject *data, const uint8_t *p, int is_checked, PyObject *open) {
    const int codec = of->end - p < HEADER ? 0 : p[ATTRIBUTES_AT] & COMPRESSION_MASK;
    Area *area = &of->area;
    if (!read_header(of, p) || area->bytes + area->size != of->end)
        return PyErr_Format(PyExc_ValueError, "not exactly one whole record batch of magic 2");
    PyThreadState *state = NULL;
    const int release = is_checked && area->size >= RELEASE_FROM;
    if (release) state = PyEval_SaveThread();
    const int is_right = !is_checked || crc32c(0, p + CRC_FROM, (size_t)(of->end - p) - CRC_FROM) == big32(p + CRC_AT);
    if (release) PyEval_RestoreThread(state);
    if (!is_right)
        return PyErr_Format(PyExc_ValueError, "the checksum of the record batch at offset %lld is wrong",
                            (long long)area->base_offset);
    PyObject *payload = PySequence_GetSlice(data, (p - of->bytes) + HEADER, of->end - of->bytes);
    if (!payload || !codec) return payload;
    PyObject *decompressed = PyObject_CallFunction(open, "iO", codec, payload);
    Py_DECREF(payload);
    return decompressed;
}

static PyObject *locate_in_opened(Area *area, PyObject *opened_bytes) {
    Py_buffer data;
    if (PyObject_GetBuffer(opened_bytes, &data, PyBUF_SIMPLE) < 0) return NULL;
    area->bytes = area->origin = data.buf;
    area->size = (size_t)data.len;
    area->last_offset = -1;
    PyObject *columns = locate_in(area), *type, *value, *trace;
    PyBuffer_Release(&data);
    if (columns || !PyErr_ExceptionMatches(PyExc_ValueError)) return columns;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_Format(PyExc_ValueError, "the record batch at offset %lld: %S", (long long)area->base_offset, value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return NULL;
}

PyDoc_STRVAR(open_batch_doc,
    "open_batch(data, start, end, is_checked, open) -> (area, columns) of one batch; open(codec, payload) "
    "decompresses; raises ValueError");

static PyObject *open_batch(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer data;
    if (count != 5) return PyErr_Format(PyExc_TypeError, "open_batch takes 5 arguments, not %zd", count);
    const Py_ssize_t start = PyLong_AsSsize_t(args[1]), end = PyLong_AsSsize_t(args[2]);
    const int is_checked = PyObject_IsTrue(args[3]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *decompressed = NULL, *columns = NULL;
    Run of = {.bytes = data.buf};
    if (start < 0 || end < start || end > data.len) {
        PyErr_SetString(PyExc_ValueError, "no such range of bytes");
    } else {
        of.end = of.bytes + end;
        decompressed = checked_payload(&of, args[0], of.bytes + start, is_checked, args[4]);
    }
    if (decompressed) columns = locate_in_opened(&of.area, decompressed);
    PyBuffer_Release(&data);
    if (columns) return Py_BuildValue("(NN)", decompressed, columns);
    Py_XDECREF(decompressed);
    return NULL;
}

PyDoc_STRVAR(room_doc, "room(size) -> bytearray of that size, with any content");

static PyObject *room(PyObject *module, PyObject *size) {
    (void)module;
    const Py_ssize_t bytes = PyLong_AsSsize_t(size);
    if (bytes >= 0) return PyByteArray_FromStringAndSize(NULL, bytes);
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "a negative size");
}

PyDoc_STRVAR(hashes_doc, "hashes(area, columns, first, last) -> uint32 of each row; raises ValueError");

static PyObject *hashes(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer data;
    char *memory;
    Py_ssize_t size;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "hashes takes 4 arguments, not %zd", count);
    const Py_ssize_t first = PyLong_AsSsize_t(args[2]), last = PyLong_AsSsize_t(args[3]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(args[1], &memory, &size) < 0) return NULL;
    if (size % ROW || first < 0 || last < first || last > size / ROW) return PyErr_Format(PyExc_ValueError, "no such rows");
    PyObject *row_hashes = PyBytes_FromStringAndSize(NULL, 4 * (last - first));
    if (!row_hashes || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0) {
        Py_XDECREF(row_hashes);
        return NULL;
    }
    Columns columns;
    lay_out(&columns, (uint8_t *)memory, (size_t)(size / ROW));
    const int fits = hash_keys(data.buf, data.len, &columns, (size_t)first, (size_t)last, (uint8_t *)PyBytes_AsString(row_hashes));
    PyBuffer_Release(&data);
    if (fits) return row_hashes;
    Py_DECREF(row_hashes);
    return outside();
}

PyDoc_STRVAR(order_keys_doc, "order_keys(area, columns, first, last) -> (int64 offsets, uint64 hashes) of the rows with a key; raises ValueError");

static PyObject *order_keys(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer data;
    char *memory;
    Py_ssize_t size;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "order_keys takes 4 arguments, not %zd", count);
    const Py_ssize_t first = PyLong_AsSsize_t(args[2]), last = PyLong_AsSsize_t(args[3]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(args[1], &memory, &size) < 0) return NULL;
    if (size % ROW || first < 0 || last < first || last > size / ROW) return PyErr_Format(PyExc_ValueError, "no such rows");
    const size_t rows = (size_t)(last - first);
    uint8_t *const room = PyMem_Malloc(rows ? 16 * rows : 1);
    if (!room) return PyErr_NoMemory();
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0) {
        PyMem_Free(room);
        return NULL;
    }
    Columns columns;
    lay_out(&columns, (uint8_t *)memory, (size_t)(size / ROW));
    const int64_t keyed = hash_order_keys(data.buf, data.len, &columns, (size_t)first, (size_t)last, room, room + 8 * rows);
    PyBuffer_Release(&data);
    PyObject *const keyed_rows = keyed < 0 ? outside()
        : Py_BuildValue("(y#y#)", (const char *)room, (Py_ssize_t)(8 * keyed), (const char *)(room + 8 * rows), (Py_ssize_t)(8 * keyed));
    PyMem_Free(room);
    return keyed_rows;
}

static PyObject *sampled_from(Area *area, Sampling *to) {
    if (!has_room(area)) return PyErr_Format(PyExc_ValueError, "%u records cannot be in %zu bytes", (unsigned)area->count, area->size);
    const size_t rows = samples_max(area, to);
    uint8_t *const memory = PyMem_Malloc(rows ? 2 * SAMPLE * rows : 1);
    if (!memory) return PyErr_NoMemory();
    to->keyed = memory;
    to->null = memory + SAMPLE * rows;

    PyThreadState *state = NULL;
    const int release = area->size >= RELEASE_FROM;
    if (release) state = PyEval_SaveThread();
    const char *const wrong = sample_keys(area, to);
    if (release) PyEval_RestoreThread(state);
    PyObject *samples = wrong ? PyErr_Format(PyExc_ValueError, "record %u (from 0): %s", (unsigned)area->at, wrong)
        : Py_BuildValue("(y#y#y#)", (const char *)to->keyed, (Py_ssize_t)(SAMPLE * to->keyed_rows),
                        (const char *)to->null, (Py_ssize_t)(SAMPLE * to->null_rows), (const char *)to->key, (Py_ssize_t)to->key_size);
    PyMem_Free(memory);
    return samples;
}

PyDoc_STRVAR(sample_doc, "sample(area, count, base_offset, first, every) -> (samples with keys, samples without, the first one's key or None); raises ValueError");

static PyObject *sample(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer data;
    if (count != 5) return PyErr_Format(PyExc_TypeError, "sample takes 5 arguments, not %zd", count);
    const long records = PyLong_AsLong(args[1]), first = PyLong_AsLong(args[3]), every = PyLong_AsLong(args[4]);
    Area area = {.base_offset = PyLong_AsLongLong(args[2])};
    if (PyErr_Occurred()) return NULL;
    if (records < 0 || records > INT32_MAX || first < 0 || first > INT32_MAX || every < 1 || every > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "numbers of records that no batch has");
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0) return NULL;
    area.bytes = data.buf;
    area.size = (size_t)data.len;
    area.count = (uint32_t)records;
    Sampling to = {.first = (uint32_t)first, .every = (uint32_t)every};
    PyObject *samples = sampled_from(&area, &to);
    PyBuffer_Release(&data);
    return samples;
}

PyDoc_STRVAR(tally_doc, "tally(samples, records, bytes, weight) -> pairs of samples in one bucket; adds samples to arrays of uint32 and of uint64, a number for each bucket");

static PyObject *tally(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    static const Py_ssize_t SIZES[] = {0, 4 * BUCKETS, 8 * BUCKETS};
    Py_buffer buffers[3];
    int acquired = 0, fits = 1;
    uint64_t pairs = 0;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "tally takes 4 arguments, not %zd", count);
    const long long weight = PyLong_AsLongLong(args[3]);
    if (weight == -1 && PyErr_Occurred()) return NULL;
    for (; acquired < 3; acquired++) {
        if (PyObject_GetBuffer(args[acquired], &buffers[acquired], acquired ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) break;
        fits = fits && (acquired ? buffers[acquired].len == SIZES[acquired] : buffers[acquired].len % SAMPLE == 0);
    }
    fits = fits && weight >= 1 && weight <= UINT32_MAX;
    uint32_t *samples_in_bucket = acquired == 3 && fits ? PyMem_Calloc(BUCKETS, sizeof *samples_in_bucket) : NULL;
    if (samples_in_bucket) pairs = tally_samples(buffers[0].buf, (size_t)buffers[0].len / SAMPLE, (uint32_t)weight, buffers[1].buf, buffers[2].buf, samples_in_bucket);
    else if (acquired == 3 && fits) PyErr_NoMemory();
    else if (acquired == 3) PyErr_SetString(PyExc_ValueError, "no such samples, buckets or weight");
    const int is_done = samples_in_bucket != NULL;
    PyMem_Free(samples_in_bucket);
    while (acquired) PyBuffer_Release(&buffers[--acquired]);
    return is_done ? PyLong_FromUnsignedLongLong(pairs) : NULL;
}

static int prepare(PyObject *module) {
    State *state = PyModule_GetState(module);
    fill_tables();
    detect_processor(ALL);
    state->records = (PyTypeObject *)PyType_FromModuleAndSpec(module, &records_spec, NULL);
    state->handed_out = (PyTypeObject *)PyType_FromModuleAndSpec(module, &handed_out_spec, NULL);
    state->moves_name = PyUnicode_InternFromString("moves");
    if (!state->records || !state->handed_out || !state->moves_name) return -1;
    return PyModule_AddIntConstant(module, "VERSION", VERSION);
}

static int visit_state(PyObject *module, visitproc visit, void *arg) {
    const State *state = PyModule_GetState(module);
    Py_VISIT(state->records);
    Py_VISIT(state->handed_out);
    return 0;
}

static int clear_state(PyObject *module) {
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->records);
    Py_CLEAR(state->handed_out);
    return 0;
}

static void free_state(void *module) {
    clear_state(module);
    Py_CLEAR(((State *)PyModule_GetState(module))->moves_name);
}

static PyMethodDef functions[] = {
    {"find", (PyCFunction)(void (*)(void))find, METH_FASTCALL, find_doc},
    {"find_run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, run_doc},
    {"build", (PyCFunction)(void (*)(void))build, METH_FASTCALL, build_doc},
    {"records", (PyCFunction)(void (*)(void))records, METH_FASTCALL, records_doc},
    {"handed_out", handed_out, METH_O, handed_out_doc},
    {"open_batch", (PyCFunction)(void (*)(void))open_batch, METH_FASTCALL, open_batch_doc},
    {"room", room, METH_O, room_doc},
    {"hashes", (PyCFunction)(void (*)(void))hashes, METH_FASTCALL, hashes_doc},
    {"order_keys", (PyCFunction)(void (*)(void))order_keys, METH_FASTCALL, order_keys_doc},
    {"sample", (PyCFunction)(void (*)(void))sample, METH_FASTCALL, sample_doc},
    {"tally", (PyCFunction)(void (*)(void))tally, METH_FASTCALL, tally_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kafka_share_proxy.wire.records._record_positions",
    .m_doc = "Positions of the records of a batch.",
    .m_size = sizeof(State),
    .m_methods = functions,
    .m_traverse = visit_state,
    .m_clear = clear_state,
    .m_free = free_state,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__record_positions(void) { return PyModuleDef_Init(&definition); }
#endif
