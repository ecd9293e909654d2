/* Unwritten audit events, and their text. event_log.py has the Python fallback. An event is a few references until it is
 * written. Its line consists of the fragments of its kind and of its values. Limited API of CPython 3.11.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

enum { VERSION = 1, RING_MIN = 64, NUMBER_MAX = 24, COMMON = 8 }; /* event_log.BUILT_VERSION, event_log.COMMON */

typedef struct {
    long long seq, ts_ms;
    PyObject *layout, *place, *group, *member, *values;
} Event;

typedef struct {
    PyObject_HEAD
    PyObject *wall_ms, *layouts, *json;
    Event *ring;
    Py_ssize_t first, count, room, count_max;
    long long seq, dropped;
} EventLog;

/* Buffer of one line. */
typedef struct {
    char *bytes;
    size_t size, room;
} Text;

/* Values that all lines of one `take` share. */
typedef struct {
    EventLog *log;
    PyObject *proxy_id, *cluster, *topic_name;
    PyObject *names; /* topic id -> bytes of its name as JSON */
} Writing;

static Event *event_at(EventLog *self, Py_ssize_t index) { return &self->ring[(self->first + index) & (self->room - 1)]; }

static void drop_first(EventLog *self) {
    Event event = *event_at(self, 0);
    self->first = (self->first + 1) & (self->room - 1);
    self->count--;
    Py_DECREF(event.layout);
    Py_DECREF(event.place);
    Py_DECREF(event.group);
    Py_DECREF(event.member);
    Py_DECREF(event.values);
}

static int reserve_event(EventLog *self) {
    if (self->count < self->room) return 0;
    Py_ssize_t room = self->room ? 2 * self->room : RING_MIN;
    Event *ring = PyMem_Malloc((size_t)room * sizeof *ring);
    if (!ring) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->count; i++) ring[i] = *event_at(self, i);
    PyMem_Free(self->ring);
    self->ring = ring;
    self->room = room;
    self->first = 0;
    return 0;
}

/* Return the layout of a kind, borrowed; NULL: unknown kind, or a wrong number of values. */
static PyObject *layout_of(EventLog *self, PyObject *kind, PyObject *values) {
    PyObject *layout = PyDict_GetItemWithError(self->layouts, kind);
    if (!layout && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, kind);
    if (!layout) return NULL;
    Py_ssize_t expected = PyTuple_Size(layout) - 1 - COMMON, count = PyTuple_Size(values);
    if (expected != count && !PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "%U has %zd values, not %zd", kind, expected, count);
    return PyErr_Occurred() ? NULL : layout;
}

static const char offer_doc[] = "offer(kind, place, group, member, values): see event_log.EventLog.";

static PyObject *offer(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    EventLog *self = (EventLog *)object;
    if (count != 5) return PyErr_Format(PyExc_TypeError, "offer takes 5 arguments, not %zd", count);
    PyObject *layout = layout_of(self, args[0], args[4]);
    if (!layout) return NULL;
    self->seq++;
    if (self->count >= self->count_max) {
        self->dropped++;
        Py_RETURN_NONE;
    }
    PyObject *now = PyObject_CallNoArgs(self->wall_ms);
    long long ts_ms = now ? PyLong_AsLongLong(now) : -1;
    Py_XDECREF(now);
    if (PyErr_Occurred() || reserve_event(self) < 0) return NULL;
    Event *event = event_at(self, self->count++);
    *event = (Event){self->seq, ts_ms, Py_NewRef(layout), Py_NewRef(args[1]), Py_NewRef(args[2]), Py_NewRef(args[3]),
                     Py_NewRef(args[4])};
    Py_RETURN_NONE;
}

/* Return the number of first events whose cost reaches `cost_max`; -1: exception. */
static Py_ssize_t affordable(EventLog *self, PyObject *cost_max) {
    long long remaining = PyLong_AsLongLong(cost_max);
    Py_ssize_t count = 0;
    for (; !PyErr_Occurred() && remaining > 0 && count < self->count; count++)
        remaining -= PyLong_AsLongLong(PyTuple_GetItem(event_at(self, count)->layout, 0));
    return PyErr_Occurred() ? -1 : count;
}

static const char topic_ids_doc[] = "topic_ids(cost_max): see event_log.EventLog.";

static PyObject *topic_ids(PyObject *object, PyObject *cost_max) {
    EventLog *self = (EventLog *)object;
    Py_ssize_t count = affordable(self, cost_max);
    PyObject *topics = count < 0 ? NULL : PySet_New(NULL), *last = NULL;
    for (Py_ssize_t i = 0; topics && i < count; i++) {
        PyObject *topic = PyTuple_GetItem(event_at(self, i)->place, 0);
        if (!topic || (topic != last && PyBytes_Check(topic) && PySet_Add(topics, topic) < 0)) Py_CLEAR(topics);
        last = topic;
    }
    return topics;
}

/* ---- text ---- */

static int reserve(Text *text, size_t size) {
    if (text->size + size <= text->room) return 0;
    size_t room = 2 * (text->size + size) + 512;
    char *bytes = PyMem_Realloc(text->bytes, room);
    if (!bytes) {
        PyErr_NoMemory();
        return -1;
    }
    text->bytes = bytes;
    text->room = room;
    return 0;
}

static int put(Text *text, const char *bytes, size_t size) {
    if (reserve(text, size) < 0) return -1;
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    return 0;
}

static int put_number(Text *text, long long value) {
    char digits[NUMBER_MAX];
    int at = NUMBER_MAX;
    unsigned long long rest = value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value;
    do digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0) digits[--at] = '-';
    return put(text, digits + at, (size_t)(NUMBER_MAX - at));
}

static int put_bytes(Text *text, PyObject *object) {
    char *bytes;
    Py_ssize_t size;
    return !object || PyBytes_AsStringAndSize(object, &bytes, &size) < 0 ? -1 : put(text, bytes, (size_t)size);
}

/* Append a value as `json` returns it. */
static int put_other(Writing *of, Text *text, PyObject *value) {
    PyObject *json = PyObject_CallFunctionObjArgs(of->log->json, value, NULL);
    Py_ssize_t size;
    const char *bytes = json ? PyUnicode_AsUTF8AndSize(json, &size) : NULL;
    int result = bytes ? put(text, bytes, (size_t)size) : -1;
    Py_XDECREF(json);
    return result;
}

static int is_plain(const char *bytes, Py_ssize_t size) {
    for (Py_ssize_t i = 0; i < size; i++)
        if (bytes[i] < ' ' || bytes[i] > '~' || bytes[i] == '"' || bytes[i] == '\\') return 0;
    return 1;
}

static int put_string(Writing *of, Text *text, PyObject *value) {
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(value, &size);
    if (!bytes) PyErr_Clear(); /* lone surrogates */
    if (!bytes || !is_plain(bytes, size)) return put_other(of, text, value);
    return put(text, "\"", 1) < 0 || put(text, bytes, (size_t)size) < 0 ? -1 : put(text, "\"", 1);
}

static int put_value(Writing *of, Text *text, PyObject *value) {
    if (value == Py_None) return put(text, "null", 4);
    if (PyUnicode_CheckExact(value)) return put_string(of, text, value);
    if (!PyLong_CheckExact(value)) return put_other(of, text, value);
    int too_large;
    long long number = PyLong_AsLongLongAndOverflow(value, &too_large);
    return too_large ? put_other(of, text, value) : put_number(text, number);
}

/* Return the name of a topic as JSON, a new reference. */
static PyObject *topic_as_json(Writing *of, PyObject *topic_id) {
    Text text = {0};
    PyObject *name = PyObject_CallFunctionObjArgs(of->topic_name, topic_id, NULL);
    PyObject *json = NULL;
    if (name && put_value(of, &text, name) == 0) json = PyBytes_FromStringAndSize(text.bytes, (Py_ssize_t)text.size);
    Py_XDECREF(name);
    PyMem_Free(text.bytes);
    if (json && PyDict_SetItem(of->names, topic_id, json) < 0) Py_CLEAR(json);
    return json;
}

static int put_topic(Writing *of, Text *text, PyObject *topic) {
    if (!topic || !PyBytes_Check(topic)) return topic ? put_value(of, text, topic) : -1;
    PyObject *name = Py_XNewRef(PyDict_GetItemWithError(of->names, topic));
    if (!name && !PyErr_Occurred()) name = topic_as_json(of, topic);
    int result = put_bytes(text, name);
    Py_XDECREF(name);
    return result;
}

static int put_fragment(Text *text, const Event *event, Py_ssize_t index) {
    return put_bytes(text, PyTuple_GetItem(event->layout, 1 + index));
}

static int put_common(Writing *of, Text *text, const Event *event) {
    PyObject *objects[] = {of->proxy_id, NULL, NULL, of->cluster, PyTuple_GetItem(event->place, 0),
                           PyTuple_GetItem(event->place, 1), event->group, event->member};
    for (int i = 0; i < COMMON; i++) {
        if (put_fragment(text, event, i) < 0) return -1;
        int result = i == 1 ? put_number(text, event->seq) : i == 2 ? put_number(text, event->ts_ms)
            : i == 4 ? put_topic(of, text, objects[i]) : objects[i] ? put_value(of, text, objects[i]) : -1;
        if (result < 0) return -1;
    }
    return 0;
}

/* Return a line as bytes, a new reference. */
static PyObject *line(Writing *of, Text *text, const Event *event) {
    text->size = 0;
    if (put_common(of, text, event) < 0) return NULL;
    Py_ssize_t values = PyTuple_Size(event->values);
    for (Py_ssize_t i = 0; i < values; i++)
        if (put_fragment(text, event, COMMON + i) < 0 || put_value(of, text, PyTuple_GetItem(event->values, i)) < 0) return NULL;
    return put(text, "}\n", 2) < 0 ? NULL : PyBytes_FromStringAndSize(text->bytes, (Py_ssize_t)text->size);
}

static PyObject *lines(Writing *of, Py_ssize_t count) {
    Text text = {0};
    PyObject *lines_taken = count < 0 ? NULL : PyList_New(0);
    for (Py_ssize_t i = 0; lines_taken && i < count; i++) {
        Event event = *event_at(of->log, 0); /* functions that are called may offer events */
        PyObject *bytes = line(of, &text, &event);
        drop_first(of->log);
        if (!bytes || PyList_Append(lines_taken, bytes) < 0) Py_CLEAR(lines_taken);
        Py_XDECREF(bytes);
    }
    PyMem_Free(text.bytes);
    return lines_taken;
}

static const char take_doc[] = "take(cost_max, proxy_id, cluster, topic_name): see event_log.EventLog.";

static PyObject *take(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    EventLog *self = (EventLog *)object;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "take takes 4 arguments, not %zd", count);
    Writing of = {self, args[1], args[2], args[3], PyDict_New()};
    PyObject *lines_taken = of.names ? lines(&of, affordable(self, args[0])) : NULL;
    Py_XDECREF(of.names);
    return lines_taken;
}

/* ---- the type ---- */

static int initialise(PyObject *object, PyObject *args, PyObject *names) {
    EventLog *self = (EventLog *)object;
    PyObject *wall_ms, *layouts, *json;
    (void)names;
    if (self->wall_ms) {
        PyErr_SetString(PyExc_TypeError, "a log is initialised once");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "nOO!O", &self->count_max, &wall_ms, &PyDict_Type, &layouts, &json)) return -1;
    self->wall_ms = Py_NewRef(wall_ms);
    self->layouts = Py_NewRef(layouts);
    self->json = Py_NewRef(json);
    return 0;
}

static Py_ssize_t length(PyObject *self) { return ((EventLog *)self)->count; }

static int traverse(PyObject *object, visitproc visit, void *arg) {
    EventLog *self = (EventLog *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->wall_ms);
    Py_VISIT(self->layouts);
    Py_VISIT(self->json);
    for (Py_ssize_t i = 0; i < self->count; i++) Py_VISIT(event_at(self, i)->values);
    return 0;
}

static int clear(PyObject *object) {
    EventLog *self = (EventLog *)object;
    while (self->count) drop_first(self);
    Py_CLEAR(self->wall_ms);
    Py_CLEAR(self->layouts);
    Py_CLEAR(self->json);
    return 0;
}

static void deallocate(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    PyMem_Free(((EventLog *)self)->ring);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"offer", (PyCFunction)(void (*)(void))offer, METH_FASTCALL, offer_doc},
    {"topic_ids", topic_ids, METH_O, topic_ids_doc},
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, take_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"seq", T_LONGLONG, offsetof(EventLog, seq), READONLY, "Number of the last event, dropped ones included."},
    {"dropped", T_LONGLONG, offsetof(EventLog, dropped), READONLY, "Events dropped because the queue was full."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot log_slots[] = {
    {Py_tp_doc, "EventLog(count_max, wall_ms, layouts, json): see event_log.EventLog."},
    {Py_tp_init, initialise},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_dealloc, deallocate},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},
    {Py_sq_length, length},
    {0, NULL},
};

static PyType_Spec log_spec = {
    "kafka_share_proxy.audit._event_log.EventLog", sizeof(EventLog), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, log_slots,
};

static int prepare(PyObject *module) {
    PyObject *type = PyType_FromSpec(&log_spec);
    int result = type ? PyModule_AddObjectRef(module, "EventLog", type) : -1;
    Py_XDECREF(type);
    return result < 0 ? -1 : PyModule_AddIntConstant(module, "VERSION", VERSION);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kafka_share_proxy.audit._event_log",
    .m_doc = "Unwritten audit events, and their text.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__event_log(void) { return PyModuleDef_Init(&definition); }
