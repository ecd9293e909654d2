/* The plan and the frame of the commonest individual commit, in one pass: see text_commits.py, whose function this is.
 * Everything uncommon returns None, and the model plans it. Limited API of CPython 3.11.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { VERSION = 2 }; /* text_commits.BUILT_VERSION */
enum { KEY_AT = 4, CORRELATION_AT = 8, CLIENT_AT = 12 }; /* of a request frame */
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

/* A number of at most 18 digits at *at; -1: there is none. */
static int64_t decimal(const char **at, const char *end) {
    int64_t value = 0;
    const char *from = *at;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++) {
        if (*at - from == DIGITS_MAX) return -1;
        value = value * 10 + (**at - '0');
    }
    return *at > from ? value : -1;
}

/* A text of one range: whether it is one. NULs at its end are allowed. */
static int read_text(const char *text, Py_ssize_t size, Merged *found, int *has_nul) {
    const char *at = text + PREFIX_SIZE, *end = text + size;
    if (size < PREFIX_SIZE || memcmp(text, PREFIX, PREFIX_SIZE)) return 0;
    found->start = decimal(&at, end);
    if (found->start < 0 || at == end || *at++ != '-') return 0;
    found->end = decimal(&at, end) + 1;
    *has_nul = at < end;
    while (at < end && !*at) at++;
    return at == end && found->start < found->end;
}

/* The first index from `low` on with a bound of at least `least`. */
static Py_ssize_t bisect(const int64_t *bounds, Py_ssize_t low, Py_ssize_t high, int64_t least) {
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (bounds[middle] < least) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void merge(const Ranges *held, Merged *one) {
    one->low = bisect(held->ends, 0, held->count, one->start);
    one->high = bisect(held->starts, one->low, held->count, one->end + 1);
    if (one->low == one->high) return;
    if (held->starts[one->low] < one->start) one->start = held->starts[one->low];
    if (held->ends[one->high - 1] > one->end) one->end = held->ends[one->high - 1];
}

static int digits(int64_t value) {
    int count = 1;
    for (; value >= 10; value /= 10) count++;
    return count;
}

static char *put_decimal(char *to, int64_t value) {
    char *behind = to + digits(value);
    for (char *at = behind; at > to; value /= 10) *--at = (char)('0' + value % 10);
    return behind;
}

/* One range, inclusive, with a comma before it unless it is the first. Without room it is only counted. */
static Py_ssize_t put_range(char *to, int64_t start, int64_t end, int is_first) {
    if (!to) return digits(start) + 1 + digits(end - 1) + !is_first;
    char *at = to;
    if (!is_first) *at++ = ',';
    at = put_decimal(at, start);
    *at++ = '-';
    return put_decimal(at, end - 1) - to;
}

/* The text of all ranges after the merge, and its size. Without room, or beyond `most`, it is only counted. */
static Py_ssize_t put_ranges(char *to, const Ranges *held, const Merged *one, Py_ssize_t most) {
    Py_ssize_t size = 0;
    for (Py_ssize_t i = 0; i < one->low && size <= most; i++)
        size += put_range(to ? to + size : NULL, held->starts[i], held->ends[i], !size);
    size += put_range(to ? to + size : NULL, one->start, one->end, !size);
    for (Py_ssize_t i = one->high; i < held->count && size <= most; i++)
        size += put_range(to ? to + size : NULL, held->starts[i], held->ends[i], 0);
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

/* The request with the text of all ranges in place of the bytes from `at` to `behind`; `size`: of all ranges. */
static PyObject *written(
    const Py_buffer *frame, long version, Py_ssize_t at, Py_ssize_t behind, const Ranges *held, const Merged *one, Py_ssize_t size, int has_nul)
{
    uint8_t length[3];
    Py_ssize_t text = PREFIX_SIZE + size + has_nul, length_size = put_length(length, version, text) - length;
    Py_ssize_t whole = at + length_size + text + frame->len - behind, body = whole - 4;
    PyObject *made = PyBytes_FromStringAndSize(NULL, whole);
    uint8_t *to = made ? (uint8_t *)PyBytes_AsString(made) : NULL;
    if (!to) return NULL;
    for (int i = 4; i--; body >>= 8) to[i] = (uint8_t)body;
    memcpy(to + 4, (const uint8_t *)frame->buf + 4, (size_t)at - 4);
    memcpy(to + at, length, (size_t)length_size);
    to += at + length_size;
    memcpy(to, PREFIX, PREFIX_SIZE);
    put_ranges((char *)to + PREFIX_SIZE, held, one, size);
    if (has_nul) to[PREFIX_SIZE + size] = 0;
    memcpy(to + text, (const uint8_t *)frame->buf + behind, (size_t)(frame->len - behind));
    return made;
}

/* The metadata of a request, and where it is in the frame with its length. */
typedef struct {
    const char *text;
    Py_ssize_t size, at, behind;
} Metadata;

/* The length of a string at *at, which moves behind it; -1: null, or the frame ends. */
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

/* Whether the frame differs from the sample in correlation id and metadata only, which is then replaced by its own. */
static int repeats(const Py_buffer *frame, const char *sample, Py_ssize_t sample_size, long version, Metadata *of) {
    const char *bytes = frame->buf;
    Py_ssize_t rest = sample_size - of->behind, at = of->at;
    if (at < CLIENT_AT || rest < 0 || frame->len < at) return 0;
    if (memcmp(bytes + KEY_AT, sample + KEY_AT, CORRELATION_AT - KEY_AT)) return 0;
    if (memcmp(bytes + CLIENT_AT, sample + CLIENT_AT, (size_t)(at - CLIENT_AT))) return 0;
    of->size = get_length(frame, version, &at);
    if (of->size < 0 || at + of->size + rest != frame->len) return 0;
    if (memcmp(bytes + at + of->size, sample + of->behind, (size_t)rest)) return 0;
    of->text = bytes + at;
    of->behind = at + of->size;
    return 1;
}

typedef struct {
    long version;
    int64_t committed;
    Py_ssize_t characters, ranges_max;
    PyObject *sample; /* bytes; NULL: the entry is of this frame */
} Bounds;

/* The metadata of the entry, or of the frame that repeats the sample; 0: none, with or without an exception. */
static int read_metadata(const Py_buffer *frame, PyObject *entry, const Bounds *within, Metadata *of) {
    of->at = PyLong_AsSsize_t(PyTuple_GetItem(entry, METADATA_AT));
    of->behind = PyLong_AsSsize_t(PyTuple_GetItem(entry, AFTER_METADATA));
    if (PyErr_Occurred()) return 0;
    if (of->at < 4 || of->behind < of->at) return PyErr_Format(PyExc_ValueError, "the entry is not of this frame"), 0;
    if (within->sample) {
        char *sample;
        Py_ssize_t size;
        return !PyBytes_AsStringAndSize(within->sample, &sample, &size) && repeats(frame, sample, size, within->version, of);
    }
    PyObject *metadata = PyTuple_GetItem(entry, METADATA);
    of->text = metadata == Py_None ? NULL : PyUnicode_AsUTF8AndSize(metadata, &of->size);
    if (of->text && frame->len < of->behind) return PyErr_Format(PyExc_ValueError, "the entry is not of this frame"), 0;
    return of->text != NULL;
}

/* The plan; NULL without an exception: the model plans it. */
static PyObject *planned(const Py_buffer *frame, PyObject *entry, const Ranges *held, const Bounds *within) {
    int has_nul = 0;
    Merged one;
    Metadata of;
    int64_t offset = PyLong_AsLongLong(PyTuple_GetItem(entry, OFFSET));
    if (PyErr_Occurred() || !read_metadata(frame, entry, within, &of)) return NULL;
    if (offset < 0 || offset != within->committed || !read_text(of.text, of.size, &one, &has_nul)) return NULL;
    if (one.start <= offset || (held->count && held->starts[0] <= offset)) return NULL; /* it would move */
    merge(held, &one);
    Py_ssize_t most = (within->characters < STRING_MAX ? within->characters : STRING_MAX) - PREFIX_SIZE - has_nul;
    if (held->count + 1 - (one.high - one.low) > within->ranges_max) return NULL;
    Py_ssize_t size = put_ranges(NULL, held, &one, most);
    if (size > most) return NULL;
    PyObject *made = written(frame, within->version, of.at, of.behind, held, &one, size, has_nul);
    return made ? Py_BuildValue("(N(nnLL))", made, one.low, one.high, (long long)one.start, (long long)one.end) : NULL;
}

/* Both are arrays of int64 of the same length. */
static int are_ranges(const Py_buffer *starts, const Py_buffer *ends, Ranges *found) {
    *found = (Ranges){starts->buf, ends->buf, starts->len / (Py_ssize_t)sizeof(int64_t)};
    return starts->len == ends->len && starts->itemsize == sizeof(int64_t) && ends->itemsize == sizeof(int64_t);
}

static PyObject *plan_of_buffers(PyObject *const *args, const Bounds *within) {
    Py_buffer frame, starts, ends;
    PyObject *found = NULL;
    Ranges held;
    if (PyObject_GetBuffer(args[0], &frame, PyBUF_SIMPLE) < 0) return NULL;
    if (PyObject_GetBuffer(args[4], &starts, PyBUF_ND) == 0) {
        if (PyObject_GetBuffer(args[5], &ends, PyBUF_ND) == 0) {
            if (are_ranges(&starts, &ends, &held)) found = planned(&frame, args[2], &held, within);
            else PyErr_SetString(PyExc_ValueError, "starts and ends are arrays of int64 of the same length");
            PyBuffer_Release(&ends);
        }
        PyBuffer_Release(&starts);
    }
    PyBuffer_Release(&frame);
    return found || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

static const char plan_doc[] =
    "plan(frame, version, entry, committed, starts, ends, characters, ranges_max, sample): see text_commits.plan.";

static PyObject *plan(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 9) return PyErr_Format(PyExc_TypeError, "plan takes 9 arguments, not %zd", count);
    if (!PyTuple_Check(args[2]) || PyTuple_Size(args[2]) != FIELDS) return PyErr_Format(PyExc_ValueError, "an entry is a tuple of %d", FIELDS);
    PyObject *sample = args[8] == Py_None ? NULL : args[8];
    Bounds within = {
        PyLong_AsLong(args[1]), PyLong_AsLongLong(args[3]), PyLong_AsSsize_t(args[6]), PyLong_AsSsize_t(args[7]), sample};
    return PyErr_Occurred() ? NULL : plan_of_buffers(args, &within);
}

static int prepare(PyObject *module) { return PyModule_AddIntConstant(module, "VERSION", VERSION); }

static PyMethodDef functions[] = {
    {"plan", (PyCFunction)(void (*)(void))plan, METH_FASTCALL, plan_doc},
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
