/* Plan and frame of the most common individual commit, and its effect: see text_commits.py. Other commits return None, and
 * the model plans them. Limited API of CPython 3.11.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { VERSION = 4 }; /* text_commits.BUILT_VERSION */
enum { KEY_AT = 4, CORRELATION_AT = 8, CLIENT_AT = 12 }; /* of a request frame */
enum { RESPONSE_ID_AT = 4, RESPONSE_MIN = 8 }; /* of a response frame: its correlation id, and what follows it */
enum { FLEXIBLE_SINCE = 8, DIGITS_MAX = 18, STRING_MAX = 0x7FFF, PREFIX_SIZE = 5 };
enum { OFFSET = 2, METADATA = 4, METADATA_AT = 6, AFTER_METADATA, FIELDS }; /* of commit_frames.CommittedEntry */

static const char PREFIX[] = "ic/1;"; /* commit_text.PREFIX */

/* Half-open ranges, ascending, as in offsets.ranges.OffsetRanges. */
typedef struct {
    const int64_t *starts, *ends;
    Py_ssize_t count;
} Ranges;

/* The merged range, and the indices [low, high) of the ranges that it replaces. */
typedef struct {
    int64_t start, end;
    Py_ssize_t low, high;
} Merged;

/* Read a number of at most 18 digits at *at; -1: there is none. */
static int64_t decimal(const char **at, const char *end) {
    int64_t value = 0;
    const char *from = *at;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++) {
        if (*at - from == DIGITS_MAX) return -1;
        value = value * 10 + (**at - '0');
    }
    return *at > from ? value : -1;
}

/* Read a text of one range. True if it is one. NULs at its end are allowed. */
static int read_text(const char *text, Py_ssize_t size, Merged *range, int *has_nul) {
    const char *at = text + PREFIX_SIZE, *end = text + size;
    if (size < PREFIX_SIZE || memcmp(text, PREFIX, PREFIX_SIZE)) return 0;
    range->start = decimal(&at, end);
    if (range->start < 0 || at == end || *at++ != '-') return 0;
    range->end = decimal(&at, end) + 1;
    *has_nul = at < end;
    while (at < end && !*at) at++;
    return at == end && range->start < range->end;
}

/* Return the first index from `low` on with a bound of at least `least`. */
static Py_ssize_t bisect(const int64_t *bounds, Py_ssize_t low, Py_ssize_t high, int64_t least) {
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (bounds[middle] < least) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void merge(const Ranges *ranges, Merged *merged) {
    merged->low = bisect(ranges->ends, 0, ranges->count, merged->start);
    merged->high = bisect(ranges->starts, merged->low, ranges->count, merged->end + 1);
    if (merged->low == merged->high) return;
    if (ranges->starts[merged->low] < merged->start) merged->start = ranges->starts[merged->low];
    if (ranges->ends[merged->high - 1] > merged->end) merged->end = ranges->ends[merged->high - 1];
}

static int digits(int64_t value) {
    int count = 1;
    for (; value >= 10; value /= 10) count++;
    return count;
}

static char *put_decimal(char *to, int64_t value) {
    char *end = to + digits(value);
    for (char *at = end; at > to; value /= 10) *--at = (char)('0' + value % 10);
    return end;
}

/* Write one range, inclusive, with a comma before it unless it is the first. Without memory (NULL), only return the size. */
static Py_ssize_t put_range(char *to, int64_t start, int64_t end, int is_first) {
    if (!to) return digits(start) + 1 + digits(end - 1) + !is_first;
    char *at = to;
    if (!is_first) *at++ = ',';
    at = put_decimal(at, start);
    *at++ = '-';
    return put_decimal(at, end - 1) - to;
}

/* Write all ranges after the merge and return the size of the text. Without memory, only return it; stop beyond
 * `size_max`. */
static Py_ssize_t put_ranges(char *to, const Ranges *ranges, const Merged *merged, Py_ssize_t size_max) {
    Py_ssize_t size = 0;
    for (Py_ssize_t i = 0; i < merged->low && size <= size_max; i++)
        size += put_range(to ? to + size : NULL, ranges->starts[i], ranges->ends[i], !size);
    size += put_range(to ? to + size : NULL, merged->start, merged->end, !size);
    for (Py_ssize_t i = merged->high; i < ranges->count && size <= size_max; i++)
        size += put_range(to ? to + size : NULL, ranges->starts[i], ranges->ends[i], 0);
    return size;
}

static uint8_t *put_length(uint8_t *to, long version, Py_ssize_t size) {
    if (version < FLEXIBLE_SINCE) {
        *to++ = (uint8_t)(size >> 8);
        *to++ = (uint8_t)size;
        return to;
    }
    for (size++; size > 0x7F; size >>= 7) *to++ = (uint8_t)(size | 0x80);
    *to++ = (uint8_t)size;
    return to;
}

/* Return the request with the text of all ranges in place of the bytes from `at` to `after`; `size`: of all ranges. */
static PyObject *written(
    const Py_buffer *frame, long version, Py_ssize_t at, Py_ssize_t after, const Ranges *ranges, const Merged *merged, Py_ssize_t size, int has_nul)
{
    uint8_t length[3];
    Py_ssize_t text = PREFIX_SIZE + size + has_nul, length_size = put_length(length, version, text) - length;
    Py_ssize_t total = at + length_size + text + frame->len - after, body = total - 4;
    PyObject *request = PyBytes_FromStringAndSize(NULL, total);
    uint8_t *to = request ? (uint8_t *)PyBytes_AsString(request) : NULL;
    if (!to) return NULL;
    for (int i = 4; i--; body >>= 8) to[i] = (uint8_t)body;
    memcpy(to + 4, (const uint8_t *)frame->buf + 4, (size_t)at - 4);
    memcpy(to + at, length, (size_t)length_size);
    to += at + length_size;
    memcpy(to, PREFIX, PREFIX_SIZE);
    put_ranges((char *)to + PREFIX_SIZE, ranges, merged, size);
    if (has_nul) to[PREFIX_SIZE + size] = 0;
    memcpy(to + text, (const uint8_t *)frame->buf + after, (size_t)(frame->len - after));
    return request;
}

/* Metadata of a request, and its position in the frame, length field included. */
typedef struct {
    const char *text;
    Py_ssize_t size, at, after;
} Metadata;

/* Read the length of a string at *at, and move *at after it; -1: null, or the frame ends. */
static Py_ssize_t get_length(const Py_buffer *frame, long version, Py_ssize_t *at) {
    const uint8_t *bytes = frame->buf;
    Py_ssize_t value = 0;
    if (version < FLEXIBLE_SINCE) {
        if (*at + 2 > frame->len) return -1;
        value = bytes[*at] << 8 | bytes[*at + 1];
        *at += 2;
        return value > STRING_MAX ? -1 : value;
    }
    for (int shift = 0; shift < 21 && *at < frame->len; shift += 7) {
        uint8_t byte = bytes[(*at)++];
        value |= (Py_ssize_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return value - 1;
    }
    return -1;
}

static int64_t size_field(const char *frame) {
    const uint8_t *at = (const uint8_t *)frame;
    return (int64_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

/* True if this is one whole frame that differs from the sample in correlation id and metadata only. Get its metadata. */
static int repeats(const Py_buffer *frame, const char *sample, Py_ssize_t sample_size, long version, Metadata *metadata) {
    const char *bytes = frame->buf;
    Py_ssize_t rest = sample_size - metadata->after, position = metadata->at;
    if (position < CLIENT_AT || rest < 0 || frame->len < position || size_field(bytes) != frame->len - KEY_AT) return 0;
    if (memcmp(bytes + KEY_AT, sample + KEY_AT, CORRELATION_AT - KEY_AT)) return 0;
    if (memcmp(bytes + CLIENT_AT, sample + CLIENT_AT, (size_t)(position - CLIENT_AT))) return 0;
    metadata->size = get_length(frame, version, &position);
    if (metadata->size < 0 || position + metadata->size + rest != frame->len) return 0;
    if (memcmp(bytes + position + metadata->size, sample + metadata->after, (size_t)rest)) return 0;
    metadata->text = bytes + position;
    metadata->after = position + metadata->size;
    return 1;
}

/* Request that is planned, or repeated by the one that is: text_commits.Sample. */
typedef struct {
    long version;
    Py_ssize_t ranges_max;
    PyObject *entry, *frame; /* borrowed; frame: bytes, or None: the entry is of the frame that is planned */
} Sample;

enum { VERSION_OF, ENTRY, RANGES_MAX, FRAME, SAMPLE_FIELDS };

typedef struct {
    Sample sample;
    Py_ssize_t frame_size, characters;
    int64_t committed;
} Limits;

/* Read the metadata of the entry, or of the frame that repeats the sample; 0: none, with or without an exception. */
static int read_metadata(const Py_buffer *frame, const Sample *sample, Metadata *of) {
    PyObject *entry = sample->entry;
    of->at = PyLong_AsSsize_t(PyTuple_GetItem(entry, METADATA_AT));
    of->after = PyLong_AsSsize_t(PyTuple_GetItem(entry, AFTER_METADATA));
    if (PyErr_Occurred()) return 0;
    if (of->at < 4 || of->after < of->at) return PyErr_Format(PyExc_ValueError, "the entry is not of this frame"), 0;
    if (sample->frame != Py_None) {
        char *bytes;
        Py_ssize_t size;
        return !PyBytes_AsStringAndSize(sample->frame, &bytes, &size) && repeats(frame, bytes, size, sample->version, of);
    }
    PyObject *metadata = PyTuple_GetItem(entry, METADATA);
    of->text = metadata == Py_None ? NULL : PyUnicode_AsUTF8AndSize(metadata, &of->size);
    if (of->text && frame->len < of->after) return PyErr_Format(PyExc_ValueError, "the entry is not of this frame"), 0;
    return of->text != NULL;
}

enum { LOW = 2, HIGH, START, END, PLAN_FIELDS = 8 }; /* of text_commits.Plan */

/* Return the tuple of the request, its correlation id, its effect on the ranges, and its own range; NULL with an exception. */
static PyObject *plan_with(PyObject *request, const Merged *merged, const Merged *own) {
    PyObject *plan = request ? PyTuple_New(PLAN_FIELDS) : NULL;
    if (!plan) return Py_XDECREF(request), NULL;
    int32_t correlation_id = (int32_t)size_field(PyBytes_AsString(request) + CORRELATION_AT);
    const int64_t numbers[] = {correlation_id, merged->low, merged->high, merged->start, merged->end, own->start, own->end};
    PyTuple_SetItem(plan, 0, request);
    for (int i = 1; i < PLAN_FIELDS; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i - 1]);
        if (!number) return Py_DECREF(plan), NULL;
        PyTuple_SetItem(plan, i, number);
    }
    return plan;
}

/* Return the plan; NULL without an exception: the model plans it. */
static PyObject *planned(const Py_buffer *frame, const Ranges *ranges, const Limits *within) {
    const Sample *sample = &within->sample;
    int has_nul = 0;
    Merged merged;
    Metadata metadata;
    int64_t offset = PyLong_AsLongLong(PyTuple_GetItem(sample->entry, OFFSET));
    if (PyErr_Occurred() || !read_metadata(frame, sample, &metadata)) return NULL;
    if (offset < 0 || offset != within->committed || !read_text(metadata.text, metadata.size, &merged, &has_nul)) return NULL;
    if (merged.start <= offset || (ranges->count && ranges->starts[0] <= offset)) return NULL; /* the committed offset would move */
    Merged own = merged;
    merge(ranges, &merged);
    Py_ssize_t size_max = (within->characters < STRING_MAX ? within->characters : STRING_MAX) - PREFIX_SIZE - has_nul;
    if (ranges->count + 1 - (merged.high - merged.low) > sample->ranges_max) return NULL;
    Py_ssize_t size = put_ranges(NULL, ranges, &merged, size_max);
    if (size > size_max) return NULL;
    return plan_with(written(frame, sample->version, metadata.at, metadata.after, ranges, &merged, size, has_nul), &merged, &own);
}

/* True if both are arrays of int64 of the same length. */
static int are_ranges(const Py_buffer *starts, const Py_buffer *ends, Ranges *ranges) {
    *ranges = (Ranges){starts->buf, ends->buf, starts->len / (Py_ssize_t)sizeof(int64_t)};
    return starts->len == ends->len && starts->itemsize == sizeof(int64_t) && ends->itemsize == sizeof(int64_t);
}

/* True if it is a pair of arrays of int64 of the same length, which are then held; else false with an exception. */
static int get_ranges(PyObject *bounds, Py_buffer held[2], Ranges *ranges) {
    if (!PyTuple_Check(bounds) || PyTuple_Size(bounds) != 2) return PyErr_Format(PyExc_ValueError, "bounds are a pair of arrays"), 0;
    if (PyObject_GetBuffer(PyTuple_GetItem(bounds, 0), &held[0], PyBUF_ND) < 0) return 0;
    if (PyObject_GetBuffer(PyTuple_GetItem(bounds, 1), &held[1], PyBUF_ND) < 0) return PyBuffer_Release(&held[0]), 0;
    if (are_ranges(&held[0], &held[1], ranges)) return 1;
    PyErr_SetString(PyExc_ValueError, "starts and ends are arrays of int64 of the same length");
    PyBuffer_Release(&held[0]);
    PyBuffer_Release(&held[1]);
    return 0;
}

static PyObject *plan_of_buffers(PyObject *received, PyObject *bounds, const Limits *within) {
    Py_buffer bytes, held[2];
    PyObject *plan = NULL;
    Ranges ranges;
    if (PyObject_GetBuffer(received, &bytes, PyBUF_SIMPLE) < 0) return NULL;
    Py_buffer frame = {.buf = bytes.buf, .len = within->frame_size < bytes.len ? within->frame_size : bytes.len};
    if (get_ranges(bounds, held, &ranges)) {
        plan = planned(&frame, &ranges, within);
        PyBuffer_Release(&held[0]);
        PyBuffer_Release(&held[1]);
    }
    PyBuffer_Release(&bytes);
    return plan || PyErr_Occurred() ? plan : Py_NewRef(Py_None);
}

/* True if it is a sample with an entry, else false with an exception. */
static int read_sample(PyObject *tuple, Sample *sample) {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != SAMPLE_FIELDS)
        return PyErr_Format(PyExc_ValueError, "a sample is a tuple of %d", SAMPLE_FIELDS), 0;
    *sample = (Sample){
        PyLong_AsLong(PyTuple_GetItem(tuple, VERSION_OF)), PyLong_AsSsize_t(PyTuple_GetItem(tuple, RANGES_MAX)),
        PyTuple_GetItem(tuple, ENTRY), PyTuple_GetItem(tuple, FRAME)};
    if (!PyTuple_Check(sample->entry) || PyTuple_Size(sample->entry) != FIELDS)
        PyErr_Format(PyExc_ValueError, "an entry is a tuple of %d", FIELDS);
    return !PyErr_Occurred();
}

static const char plan_doc[] = "plan(received, size, sample, committed, bounds, characters): see text_commits.plan.";

static PyObject *plan(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 6) return PyErr_Format(PyExc_TypeError, "plan takes 6 arguments, not %zd", count);
    Limits within = {
        .frame_size = PyLong_AsSsize_t(args[1]), .committed = PyLong_AsLongLong(args[3]), .characters = PyLong_AsSsize_t(args[5])};
    if (PyErr_Occurred() || !read_sample(args[2], &within.sample)) return NULL;
    if (within.frame_size < 0) return PyErr_Format(PyExc_ValueError, "a frame has a size of 0 or more");
    return plan_of_buffers(args[0], args[4], &within);
}

/* True if the frames differ in their correlation id only. Both are whole responses. */
static int is_repeated_response(PyObject *frame, PyObject *sample) {
    char *received, *expected;
    Py_ssize_t size, expected_size;
    if (PyBytes_AsStringAndSize(frame, &received, &size) < 0 || PyBytes_AsStringAndSize(sample, &expected, &expected_size) < 0) return -1;
    return size == expected_size && size >= RESPONSE_MIN && !memcmp(received, expected, RESPONSE_ID_AT) &&
           !memcmp(received + RESPONSE_MIN, expected + RESPONSE_MIN, (size_t)(size - RESPONSE_MIN));
}

/* Put a bound in place of those at [low, high). */
static int replace_bound(PyObject *bounds, Py_ssize_t low, Py_ssize_t high, PyObject *bound) {
    if (low == high) {
        PyObject *inserted = PyObject_CallMethod(bounds, "insert", "nO", low, bound);
        return Py_XDECREF(inserted), inserted ? 0 : -1;
    }
    int64_t value = PyLong_AsLongLong(bound);
    Py_buffer numbers;
    if (PyErr_Occurred() || PyObject_GetBuffer(bounds, &numbers, PyBUF_WRITABLE | PyBUF_ND) < 0) return -1;
    int fits = numbers.itemsize == sizeof value && low >= 0 && low < high && high <= numbers.len / (Py_ssize_t)sizeof value;
    if (fits) ((int64_t *)numbers.buf)[low] = value;
    else PyErr_SetString(PyExc_ValueError, "the plan is not of these ranges");
    PyBuffer_Release(&numbers);
    return !fits ? -1 : high - low > 1 ? PySequence_DelSlice(bounds, low + 1, high) : 0;
}

static const char merge_doc[] = "merge_repeated(response, sample, bounds, plan): see text_commits.merge_repeated.";

static PyObject *merge_repeated(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "merge_repeated takes 4 arguments, not %zd", count);
    PyObject *bounds = args[2], *plan = args[3];
    if (!PyTuple_Check(plan) || PyTuple_Size(plan) != PLAN_FIELDS || !PyTuple_Check(bounds) || PyTuple_Size(bounds) != 2)
        return PyErr_Format(PyExc_ValueError, "bounds are a pair of arrays, and a plan is a tuple of %d", PLAN_FIELDS);
    Py_ssize_t low = PyLong_AsSsize_t(PyTuple_GetItem(plan, LOW)), high = PyLong_AsSsize_t(PyTuple_GetItem(plan, HIGH));
    int repeats = PyErr_Occurred() ? -1 : is_repeated_response(args[0], args[1]);
    if (repeats <= 0) return repeats ? NULL : Py_NewRef(Py_False);
    if (replace_bound(PyTuple_GetItem(bounds, 0), low, high, PyTuple_GetItem(plan, START)) < 0) return NULL;
    return replace_bound(PyTuple_GetItem(bounds, 1), low, high, PyTuple_GetItem(plan, END)) < 0 ? NULL : Py_NewRef(Py_True);
}

static int prepare(PyObject *module) { return PyModule_AddIntConstant(module, "VERSION", VERSION); }

static PyMethodDef functions[] = {
    {"plan", (PyCFunction)(void (*)(void))plan, METH_FASTCALL, plan_doc},
    {"merge_repeated", (PyCFunction)(void (*)(void))merge_repeated, METH_FASTCALL, merge_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kafka_share_proxy.commits.kernel._text_commits",
    .m_doc = "Individual commits whose ranges are in the metadata, in their commonest form.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__text_commits(void) { return PyModuleDef_Init(&definition); }
