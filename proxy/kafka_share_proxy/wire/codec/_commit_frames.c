/* OffsetCommit requests and responses of the most common form, read and rewritten in one pass: see commit_frames.py. Other
 * forms are "not read", and the generated codec decodes them. No read leaves the bytes: every length is compared with the
 * remaining bytes before it is used. Limited API of CPython 3.11.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "frame_reader.h"

enum { VERSION = 2 }; /* commit_frames.BUILT_VERSION */
enum { LOWEST = 2, HIGHEST = 10, RETENTION_UNTIL = 4, EPOCH_SINCE = 6, INSTANCE_SINCE = 7, FLEXIBLE_SINCE = 8, IDS_SINCE = 10 };
enum { THROTTLE_SINCE = 3, UUID = 16, PARTITIONS_MAX = 64, STRING_MAX = 0x7FFF }; /* commit_frames.PARTITIONS_MAX */

/* Read the length of a compact array or string; -1: null. */
static int64_t compact_length(Reader *from) { return (int64_t)unsigned_varint(from) - 1; }

static void no_tags(Reader *from) {
    if (from->is_flexible && number(from, 1)) from->is_wrong = 1;
}

/* Read a string, a new reference; None if it is null and may be. NULL: an unusual form, or an exception. */
static PyObject *text(Reader *from, int is_compact, int may_be_null) {
    int64_t length = is_compact ? compact_length(from) : number(from, 2);
    if (!from->is_wrong && length == -1 && may_be_null) return Py_NewRef(Py_None);
    const uint8_t *bytes = length > STRING_MAX ? NULL : take(from, (Py_ssize_t)length);
    PyObject *decoded = bytes ? PyUnicode_DecodeUTF8((const char *)bytes, (Py_ssize_t)length, NULL) : NULL;
    if (!decoded && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) PyErr_Clear();
    if (!decoded) from->is_wrong = 1;
    return decoded;
}

static int64_t array_count(Reader *from) {
    int64_t count = from->is_flexible ? compact_length(from) : number(from, 4);
    if (count < 1 || count > PARTITIONS_MAX) from->is_wrong = 1;
    return from->is_wrong ? 0 : count;
}

static PyObject *topic_name(Reader *from, int64_t version) {
    if (version < IDS_SINCE) return text(from, from->is_flexible, 0);
    const uint8_t *id = take(from, UUID);
    return id ? PyBytes_FromStringAndSize((const char *)id, UUID) : NULL;
}

/* Append one partition to the list, as a commit_frames.CommitEntry. */
static int add_partition(Reader *from, int64_t version, PyObject *topic, PyObject *entries) {
    int64_t index = number(from, 4);
    Py_ssize_t offset_at = from->at;
    int64_t offset = number(from, 8), epoch = version >= EPOCH_SINCE ? number(from, 4) : -1;
    Py_ssize_t metadata_at = from->at;
    PyObject *metadata = text(from, from->is_flexible, 1);
    Py_ssize_t entry_end = from->at;
    no_tags(from);
    PyObject *entry = from->is_wrong || !metadata ? NULL
        : Py_BuildValue("(OiLiOnnn)", topic, (int)index, (long long)offset, (int)epoch, metadata, offset_at, metadata_at, entry_end);
    int result = entry ? PyList_Append(entries, entry) : -1;
    Py_XDECREF(entry);
    Py_XDECREF(metadata);
    return result;
}

static int add_topic(Reader *from, int64_t version, PyObject *entries) {
    PyObject *topic = topic_name(from, version);
    int64_t count = topic ? array_count(from) : 0;
    int result = topic && !from->is_wrong ? 0 : -1;
    for (int64_t i = 0; i < count && !result; i++)
        result = PyList_Size(entries) < PARTITIONS_MAX ? add_partition(from, version, topic, entries) : -1;
    Py_XDECREF(topic);
    no_tags(from);
    return result;
}

static PyObject *read_entries(Reader *from, int64_t version) {
    PyObject *entries = PyList_New(0);
    int64_t count = array_count(from);
    int result = entries ? 0 : -1;
    for (int64_t i = 0; i < count && !result; i++) result = add_topic(from, version, entries);
    no_tags(from);
    if (result || from->is_wrong || from->at != from->end) Py_CLEAR(entries);
    return entries;
}

static PyObject *read_fields(Reader *from, int64_t version) {
    PyObject *client_id = text(from, 0, 1), *group = NULL, *member = NULL, *instance = NULL, *entries = NULL, *request = NULL;
    no_tags(from);
    if (client_id) group = text(from, from->is_flexible, 0);
    number(from, 4); /* the generation */
    if (group) member = text(from, from->is_flexible, 0);
    if (member && version >= INSTANCE_SINCE) instance = text(from, from->is_flexible, 1);
    if (version <= RETENTION_UNTIL) number(from, 8);
    if (member && !from->is_wrong) entries = read_entries(from, version);
    if (entries) request = PyTuple_Pack(4, client_id, group, member, entries);
    Py_XDECREF(client_id);
    Py_XDECREF(group);
    Py_XDECREF(member);
    Py_XDECREF(instance);
    Py_XDECREF(entries);
    return request;
}

static const char read_doc[] = "read(frame, version): see commit_frames.read.";

static PyObject *read_request(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "read takes 2 arguments, not %zd", count);
    long version = PyLong_AsLong(args[1]);
    if (version == -1 && PyErr_Occurred()) return NULL;
    Py_buffer frame;
    if (PyObject_GetBuffer(args[0], &frame, PyBUF_SIMPLE) < 0) return NULL;
    Reader from = {frame.buf, 12, frame.len, version < LOWEST || version > HIGHEST || frame.len < 12, version >= FLEXIBLE_SINCE};
    PyObject *request = from.is_wrong ? NULL : read_fields(&from, version);
    PyBuffer_Release(&frame);
    return request || PyErr_Occurred() ? request : Py_NewRef(Py_None);
}

static int is_accepted(Reader *from, int64_t version, int64_t partitions) {
    no_tags(from);
    if (version >= THROTTLE_SINCE) number(from, 4);
    for (int64_t topics = array_count(from); topics > 0 && !from->is_wrong; topics--) {
        int64_t length = version >= IDS_SINCE ? UUID : from->is_flexible ? compact_length(from) : number(from, 2);
        take(from, (Py_ssize_t)length);
        for (int64_t count = array_count(from); count > 0 && !from->is_wrong; count--, partitions--) {
            number(from, 4);
            if (number(from, 2)) return 0;
            no_tags(from);
        }
        no_tags(from);
    }
    no_tags(from);
    return !from->is_wrong && !partitions && from->at == from->end;
}

static const char accepted_doc[] = "accepted(frame, version, partitions): see commit_frames.accepted.";

static PyObject *accepted(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "accepted takes 3 arguments, not %zd", count);
    long version = PyLong_AsLong(args[1]), partitions = PyLong_AsLong(args[2]);
    if (PyErr_Occurred()) return NULL;
    Py_buffer frame;
    if (PyObject_GetBuffer(args[0], &frame, PyBUF_SIMPLE) < 0) return NULL;
    Reader from = {frame.buf, 8, frame.len, version < LOWEST || version > HIGHEST || frame.len < 8, version >= FLEXIBLE_SINCE};
    int result = !from.is_wrong && is_accepted(&from, version, partitions);
    PyBuffer_Release(&frame);
    return PyBool_FromLong(result);
}

/* Output; without memory (NULL) only its size is counted. */
typedef struct {
    uint8_t *room;
    Py_ssize_t size;
} Writer;

static void put(Writer *to, const void *bytes, Py_ssize_t size) {
    if (to->room && size) memcpy(to->room + to->size, bytes, (size_t)size);
    to->size += size;
}

static void put_number(Writer *to, int64_t value, int count) {
    uint8_t bytes[8];
    for (int i = count; i--; value >>= 8) bytes[i] = (uint8_t)value;
    put(to, bytes, count);
}

/* Return an integer of a tuple; -1 with an exception if it is not one. */
static int64_t item(PyObject *tuple, Py_ssize_t at) {
    PyObject *value = PyTuple_GetItem(tuple, at);
    return value ? PyLong_AsLongLong(value) : -1;
}

enum { OFFSET_AT = 5, METADATA_AT, AFTER_METADATA, SHORT_TEXT_MAX = 126 }; /* of commit_frames.CommittedEntry */

static int put_text(Writer *to, int64_t version, PyObject *text) {
    Py_ssize_t size = 0;
    const char *bytes = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
    if (!bytes || size > SHORT_TEXT_MAX) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no short text");
        return -1;
    }
    if (version >= FLEXIBLE_SINCE) put_number(to, size + 1, 1);
    else put_number(to, size, 2);
    put(to, bytes, size);
    return 0;
}

/* Copy the bytes from `from` to a partition, and the partition. Return the start of the rest, -1 on an exception. */
static Py_ssize_t put_entry(Writer *to, const Py_buffer *frame, Py_ssize_t from, int64_t version, PyObject *entry, PyObject *fields) {
    int64_t offset_at = item(entry, OFFSET_AT), metadata_at = item(entry, METADATA_AT), after_metadata = item(entry, AFTER_METADATA);
    int64_t offset = item(fields, 0), epoch = item(fields, 1);
    PyObject *metadata = PyTuple_GetItem(fields, 2);
    if (PyErr_Occurred()) return -1;
    if (offset_at < from || metadata_at < offset_at || after_metadata < metadata_at || frame->len < after_metadata) {
        PyErr_SetString(PyExc_ValueError, "the entry is not of this frame");
        return -1;
    }
    const uint8_t *bytes = frame->buf;
    put(to, bytes + from, (Py_ssize_t)offset_at - from);
    put_number(to, offset, 8);
    if (version >= EPOCH_SINCE) put_number(to, epoch, 4);
    if (metadata == Py_None) put(to, bytes + metadata_at, (Py_ssize_t)(after_metadata - metadata_at));
    else if (put_text(to, version, metadata)) return -1;
    return (Py_ssize_t)after_metadata;
}

static int put_request(Writer *to, const Py_buffer *frame, int64_t version, PyObject *entries, PyObject *fields) {
    Py_ssize_t at = 4;
    for (Py_ssize_t i = 0; i < PyList_Size(entries) && at >= 0; i++)
        at = put_entry(to, frame, at, version, PyList_GetItem(entries, i), PyList_GetItem(fields, i));
    if (at < 0) return -1;
    put(to, (const uint8_t *)frame->buf + at, frame->len - at);
    return 0;
}

static PyObject *rewritten_request(const Py_buffer *frame, int64_t version, PyObject *entries, PyObject *fields) {
    Writer counted = {NULL, 0};
    if (put_request(&counted, frame, version, entries, fields)) return NULL;
    PyObject *request = PyBytes_FromStringAndSize(NULL, 4 + counted.size);
    Writer to = {request ? (uint8_t *)PyBytes_AsString(request) : NULL, 0};
    if (!request) return NULL;
    put_number(&to, counted.size, 4);
    if (put_request(&to, frame, version, entries, fields)) Py_CLEAR(request);
    return request;
}

static const char rewritten_doc[] = "rewritten(frame, version, entries, fields): see commit_frames.rewritten.";

static PyObject *rewritten(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "rewritten takes 4 arguments, not %zd", count);
    long version = PyLong_AsLong(args[1]);
    if (version == -1 && PyErr_Occurred()) return NULL;
    if (!PyList_Check(args[2]) || !PyList_Check(args[3]) || PyList_Size(args[2]) != PyList_Size(args[3]))
        return PyErr_Format(PyExc_ValueError, "entries and fields are lists of the same length");
    Py_buffer frame;
    if (PyObject_GetBuffer(args[0], &frame, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *request = frame.len < 4 ? PyErr_Format(PyExc_ValueError, "no frame") : rewritten_request(&frame, version, args[2], args[3]);
    PyBuffer_Release(&frame);
    return request;
}

static int prepare(PyObject *module) { return PyModule_AddIntConstant(module, "VERSION", VERSION); }

static PyMethodDef functions[] = {
    {"read", (PyCFunction)(void (*)(void))read_request, METH_FASTCALL, read_doc},
    {"accepted", (PyCFunction)(void (*)(void))accepted, METH_FASTCALL, accepted_doc},
    {"rewritten", (PyCFunction)(void (*)(void))rewritten, METH_FASTCALL, rewritten_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kafka_share_proxy.wire.codec._commit_frames",
    .m_doc = "OffsetCommit in its most common form.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__commit_frames(void) { return PyModuleDef_Init(&definition); }
