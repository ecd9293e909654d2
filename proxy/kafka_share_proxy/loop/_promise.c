/* Promises, tasks and the running owner: see promise.py. python_promise.py has the Python fallback; tests run with both.
 * Limited API of CPython 3.11.
 *
 * A promise keeps the callbacks of all owners in one array, in the order of registration. To call a promise calls those
 * of the running owner, and to call a task runs its handler to the next await: they are callbacks themselves, where the
 * Python fallback has the methods _deliver and _step.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>
#include <structmember.h>

enum { VERSION = 1 }; /* promise.BUILT_VERSION */

/* The loop has one thread, and therefore one running owner. The others: see begin in python_promise.py. */
static PyObject *running_owner, *process, *waiting, *drain;
static PyTypeObject *promise_type, *task_type;
static PyObject *name_call_soon, *name_close, *name_failed;

typedef struct {
    PyObject *owner, *callback;
} Entry;

typedef struct {
    PyObject_HEAD
    char done;
    PyObject *value, *error; /* one of them is set once done */
    Entry *entries;          /* those of [begin, end) are not called yet */
    Py_ssize_t begin, end, room;
    Entry first; /* memory of `entries` while there is one */
} Promise;

typedef struct {
    PyObject_HEAD
    char finished, runs;
    PyObject *coroutine, *on_done; /* NULL once finished */
    PyObject *owner;
    PyObject *awaited; /* promise, or NULL */
    PyObject *value, *error;
} Task;

static int step(Task *of);

/* ---- owners. A status is 0, or -1 with an exception ---- */

static int status_of(PyObject *result) {
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static int call(PyObject *callback) {
    return Py_IS_TYPE(callback, task_type) ? step((Task *)callback) : status_of(PyObject_CallNoArgs(callback));
}

static int call_soon(PyObject *owner, PyObject *callback) {
    return status_of(PyObject_CallMethodObjArgs(owner, name_call_soon, callback, NULL));
}

/* Return the raised exception, no longer raised. */
static PyObject *caught(void) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback) PyException_SetTraceback(error, traceback);
    Py_XDECREF(traceback);
    Py_DECREF(type);
    return error;
}

/* Pass the raised exception to owner.failed, which handles it as in `except`. `rest`: a callback for call_soon before.
 * One that is no Exception ends the process and remains raised. */
static int fail_owner(PyObject *owner, PyObject *rest) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyObject *error = caught();
    PyObject *type, *before, *traceback;
    PyErr_GetExcInfo(&type, &before, &traceback);
    PyErr_SetExcInfo(Py_NewRef((PyObject *)Py_TYPE(error)), Py_NewRef(error), PyException_GetTraceback(error));
    int status = rest ? call_soon(owner, rest) : 0;
    if (!status) status = status_of(PyObject_CallMethodObjArgs(owner, name_failed, error, NULL));
    PyErr_SetExcInfo(type, before, traceback);
    Py_DECREF(error);
    return status;
}

/* Call `drain`, also while an exception is raised. */
static int drain_after(int status) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    int drained = status_of(PyObject_CallNoArgs(drain));
    if (drained) {
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
        return drained;
    }
    PyErr_Restore(type, error, traceback);
    return status;
}

static int call_for(PyObject *owner, PyObject *callback) {
    PyObject *before = running_owner;
    running_owner = Py_NewRef(owner);
    int status = call(callback);
    if (status) status = fail_owner(owner, NULL);
    running_owner = before;
    Py_DECREF(owner);
    return before == process && PyObject_Size(waiting) > 0 ? drain_after(status) : status;
}

/* ---- promises ---- */

/* Return the index of the first callback of an owner, `end` if there is none. */
static Py_ssize_t index_of(const Promise *of, const PyObject *owner) {
    Py_ssize_t at = of->begin;
    while (at < of->end && of->entries[at].owner != owner) at++;
    return at;
}

static int add_entry(Promise *of, PyObject *owner, PyObject *callback) {
    if (of->end == of->room) {
        Py_ssize_t count = of->end - of->begin, room = 2 * count + 4;
        Entry *entries = PyMem_Malloc((size_t)room * sizeof *entries);
        if (!entries) return PyErr_NoMemory(), -1;
        memcpy(entries, of->entries + of->begin, (size_t)count * sizeof *entries);
        if (of->entries != &of->first) PyMem_Free(of->entries);
        of->entries = entries;
        of->begin = 0;
        of->end = count;
        of->room = room;
    }
    of->entries[of->end++] = (Entry){Py_NewRef(owner), Py_NewRef(callback)};
    return 0;
}

/* Remove an entry and return its callback. */
static PyObject *remove_entry(Promise *of, Py_ssize_t at) {
    Entry removed = of->entries[at];
    memmove(of->entries + of->begin + 1, of->entries + of->begin, (size_t)(at - of->begin) * sizeof removed);
    if (++of->begin == of->end) of->begin = of->end = 0;
    Py_DECREF(removed.owner);
    return removed.callback;
}

/* Call the callbacks of the running owner. Each of them may register others. */
static int deliver(Promise *of) {
    PyObject *owner = Py_NewRef(running_owner);
    int status = 0;
    for (Py_ssize_t at; !status && (at = index_of(of, owner)) < of->end;) {
        PyObject *callback = remove_entry(of, at);
        status = call(callback);
        Py_DECREF(callback);
        if (status) status = fail_owner(owner, index_of(of, owner) < of->end ? (PyObject *)of : NULL);
    }
    Py_DECREF(owner);
    return status;
}

static int deliver_to(Promise *of, PyObject *owner) {
    return owner == running_owner ? deliver(of) : call_soon(owner, (PyObject *)of);
}

static int deliver_to_several(Promise *of) {
    PyObject *owners = PyDict_New(), *others = NULL;
    int status = owners ? 0 : -1;
    for (Py_ssize_t at = of->begin; !status && at < of->end; at++)
        status = PyDict_SetItem(owners, of->entries[at].owner, Py_None);
    if (!status) status = (others = PyDict_Keys(owners)) ? 0 : -1;
    for (Py_ssize_t i = 0; !status && i < PyList_Size(others); i++)
        if (PyList_GetItem(others, i) != running_owner) status = call_soon(PyList_GetItem(others, i), (PyObject *)of);
    Py_XDECREF(owners);
    Py_XDECREF(others);
    return status ? status : deliver(of);
}

static int settle(Promise *of, PyObject **outcome, PyObject *with) {
    if (of->done) return 0;
    of->done = 1;
    *outcome = Py_NewRef(with);
    if (of->begin == of->end) return 0;
    PyObject *owner = of->entries[of->begin].owner;
    for (Py_ssize_t at = of->begin + 1; at < of->end; at++)
        if (of->entries[at].owner != owner) return deliver_to_several(of);
    Py_INCREF(owner);
    int status = deliver_to(of, owner);
    Py_DECREF(owner);
    return status;
}

static int on_settled(Promise *of, PyObject *callback, PyObject *owner) {
    int is_planned = !of->done || index_of(of, owner) < of->end;
    return add_entry(of, owner, callback) ? -1 : is_planned ? 0 : deliver_to(of, owner);
}

/* Remove a callback, if it is there. Methods are equal, and not the same object each time. */
static int forget(Promise *of, PyObject *callback, PyObject *owner) {
    int is_equal = 0;
    for (Py_ssize_t at = of->begin; !is_equal && at < of->end; at++) {
        if (of->entries[at].owner != owner) continue;
        PyObject *each = Py_NewRef(of->entries[at].callback);
        is_equal = PyObject_RichCompareBool(each, callback, Py_EQ);
        if (is_equal > 0 && at < of->end && of->entries[at].callback == each) Py_DECREF(remove_entry(of, at));
        Py_DECREF(each);
    }
    return is_equal < 0 ? -1 : 0;
}

static PyObject *none_if(int status) { return status < 0 ? NULL : Py_NewRef(Py_None); }

static PyObject *promise_set(PyObject *self, PyObject *value) {
    return none_if(settle((Promise *)self, &((Promise *)self)->value, value));
}

static PyObject *promise_fail(PyObject *self, PyObject *error) {
    return none_if(settle((Promise *)self, &((Promise *)self)->error, error));
}

/* Return the owner in the arguments (callback, owner=None), NULL with an exception. */
static PyObject *owner_in(PyObject *const *args, Py_ssize_t count) {
    if (count < 1 || count > 2) return PyErr_Format(PyExc_TypeError, "it takes a callback and its owner");
    return count > 1 && args[1] != Py_None ? args[1] : running_owner;
}

static PyObject *promise_on_settled(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    PyObject *owner = owner_in(args, count);
    return owner ? none_if(on_settled((Promise *)self, args[0], owner)) : NULL;
}

static PyObject *promise_forget(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    PyObject *owner = owner_in(args, count);
    return owner ? none_if(forget((Promise *)self, args[0], owner)) : NULL;
}

static PyObject *promise_result(PyObject *self, PyObject *unused) {
    const Promise *of = (Promise *)self;
    (void)unused;
    if (of->error) PyErr_SetObject((PyObject *)Py_TYPE(of->error), of->error);
    return of->error ? NULL : Py_NewRef(of->value ? of->value : Py_None);
}

static PyObject *promise_call(PyObject *self, PyObject *args, PyObject *names) {
    (void)args, (void)names;
    return none_if(deliver((Promise *)self));
}

/* An await: yields the promise until it is settled, then returns its result. */
static PyObject *promise_next(PyObject *self) {
    if (!((Promise *)self)->done) return Py_NewRef(self);
    PyObject *value = promise_result(self, NULL);
    PyObject *stop = value && value != Py_None ? PyObject_CallFunctionObjArgs(PyExc_StopIteration, value, NULL) : NULL;
    if (stop) PyErr_SetObject(PyExc_StopIteration, stop);
    Py_XDECREF(stop);
    Py_XDECREF(value);
    return NULL;
}

static PyObject *promise_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    if (PyTuple_Size(args) || names) return PyErr_Format(PyExc_TypeError, "Promise() takes no arguments");
    Promise *of = (Promise *)PyType_GenericAlloc(type, 0);
    if (!of) return NULL;
    of->entries = &of->first;
    of->room = 1;
    return (PyObject *)of;
}

static int promise_traverse(PyObject *self, visitproc visit, void *arg) {
    const Promise *of = (Promise *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(of->value);
    Py_VISIT(of->error);
    for (Py_ssize_t at = of->begin; at < of->end; at++) {
        Py_VISIT(of->entries[at].owner);
        Py_VISIT(of->entries[at].callback);
    }
    return 0;
}

static int promise_clear(PyObject *self) {
    Promise *of = (Promise *)self;
    while (of->begin < of->end) Py_DECREF(remove_entry(of, of->begin));
    Py_CLEAR(of->value);
    Py_CLEAR(of->error);
    return 0;
}

static void promise_dealloc(PyObject *self) {
    Promise *of = (Promise *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    promise_clear(self);
    if (of->entries != &of->first) PyMem_Free(of->entries);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* ---- tasks ---- */

static int close_handler(Task *of) {
    PyObject *coroutine = of->coroutine;
    if (!coroutine) return 0;
    of->coroutine = NULL;
    PyObject *close = PyObject_GetAttr(coroutine, name_close);
    Py_DECREF(coroutine);
    int status = close ? call_for(of->owner, close) : -1;
    Py_XDECREF(close);
    return status;
}

/* Take over the value or the error, and call back. */
static int finish(Task *of, PyObject *value, PyObject *error) {
    PyObject *on_done = of->on_done;
    of->on_done = NULL;
    Py_CLEAR(of->coroutine);
    if (!on_done) { /* cancelled */
        Py_XDECREF(value);
        Py_XDECREF(error);
        return 0;
    }
    of->finished = 1;
    of->value = value;
    of->error = error;
    int status = status_of(PyObject_CallFunctionObjArgs(on_done, (PyObject *)of, NULL));
    Py_DECREF(on_done);
    return status;
}

/* Continue once the awaited promise is settled. */
static int wait_for(Task *of, PyObject *promise) {
    if (of->finished) return close_handler(of);
    if (!Py_IS_TYPE(promise, promise_type)) return PyErr_Format(PyExc_TypeError, "a handler awaits %R", promise), -1;
    of->awaited = Py_NewRef(promise);
    return on_settled((Promise *)promise, (PyObject *)of, of->owner);
}

/* Run the handler to its next await that has to wait. */
static int step(Task *of) {
    PyObject *coroutine = of->coroutine, *result;
    if (!coroutine) return 0;
    Py_CLEAR(of->awaited);
    of->runs = 1;
    Py_INCREF(coroutine);
    PySendResult status = PyIter_Send(coroutine, Py_None, &result);
    Py_DECREF(coroutine);
    if (status == PYGEN_ERROR && !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    of->runs = 0;
    if (status != PYGEN_NEXT) return status == PYGEN_RETURN ? finish(of, result, NULL) : finish(of, NULL, caught());
    int waits = wait_for(of, result);
    Py_DECREF(result);
    return waits;
}

static PyObject *task_start(PyObject *self, PyObject *unused) {
    PyObject *owner = ((Task *)self)->owner;
    (void)unused;
    if (running_owner == owner || running_owner == process) return none_if(call_for(owner, self));
    return none_if(call_soon(owner, self));
}

static PyObject *task_cancel(PyObject *self, PyObject *unused) {
    Task *of = (Task *)self;
    (void)unused;
    if (of->finished) return Py_NewRef(Py_None);
    of->finished = 1;
    Py_CLEAR(of->on_done);
    PyObject *awaited = of->awaited;
    of->awaited = NULL;
    int status = awaited ? forget((Promise *)awaited, self, of->owner) : 0;
    Py_XDECREF(awaited);
    return none_if(status || of->runs ? status : close_handler(of));
}

static PyObject *task_call(PyObject *self, PyObject *args, PyObject *names) {
    (void)args, (void)names;
    return none_if(step((Task *)self));
}

static PyObject *task_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    static char *keywords[] = {"coroutine", "on_done", "owner", NULL};
    PyObject *coroutine, *on_done, *owner = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OO|O:Task", keywords, &coroutine, &on_done, &owner)) return NULL;
    Task *of = (Task *)PyType_GenericAlloc(type, 0);
    if (!of) return NULL;
    of->coroutine = Py_NewRef(coroutine);
    of->on_done = Py_NewRef(on_done);
    of->owner = Py_NewRef(owner == Py_None ? running_owner : owner);
    return (PyObject *)of;
}

static int task_traverse(PyObject *self, visitproc visit, void *arg) {
    const Task *of = (Task *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(of->coroutine);
    Py_VISIT(of->on_done);
    Py_VISIT(of->owner);
    Py_VISIT(of->awaited);
    Py_VISIT(of->value);
    Py_VISIT(of->error);
    return 0;
}

/* All but the owner, which every method needs; owners are in Python, which breaks their cycles. */
static int task_clear(PyObject *self) {
    Task *of = (Task *)self;
    Py_CLEAR(of->coroutine);
    Py_CLEAR(of->on_done);
    Py_CLEAR(of->awaited);
    Py_CLEAR(of->value);
    Py_CLEAR(of->error);
    return 0;
}

static void task_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    task_clear(self);
    Py_DECREF(((Task *)self)->owner);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* ---- the module ---- */

static PyObject *running(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return Py_NewRef(running_owner);
}

static PyObject *on_behalf_of(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "on_behalf_of takes an owner and a callback");
    return none_if(call_for(args[0], args[1]));
}

static PyObject *begin(PyObject *module, PyObject *args) {
    (void)module;
    if (process) return PyErr_Format(PyExc_RuntimeError, "it has begun");
    if (!PyArg_ParseTuple(args, "OOO:begin", &process, &waiting, &drain)) return NULL;
    Py_INCREF(process);
    Py_INCREF(waiting);
    Py_INCREF(drain);
    running_owner = Py_NewRef(process);
    return Py_NewRef(Py_None);
}

#define METHOD(name, function, flags) {name, (PyCFunction)(void (*)(void))function, flags, "See promise."}

static PyMethodDef promise_methods[] = {
    METHOD("set", promise_set, METH_O), METHOD("fail", promise_fail, METH_O),
    METHOD("on_settled", promise_on_settled, METH_FASTCALL), METHOD("forget", promise_forget, METH_FASTCALL),
    METHOD("result", promise_result, METH_NOARGS), METHOD("__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS), {0},
};
static PyMemberDef promise_members[] = {{"done", T_BOOL, offsetof(Promise, done), READONLY, NULL}, {0}};
static PyType_Slot promise_slots[] = {
    {Py_tp_new, promise_new}, {Py_tp_dealloc, promise_dealloc}, {Py_tp_traverse, promise_traverse}, {Py_tp_clear, promise_clear},
    {Py_tp_methods, promise_methods}, {Py_tp_members, promise_members}, {Py_tp_call, promise_call}, {Py_am_await, Py_NewRef},
    {Py_tp_iter, Py_NewRef}, {Py_tp_iternext, promise_next}, {0, NULL},
};

static PyMethodDef task_methods[] = {METHOD("start", task_start, METH_NOARGS), METHOD("cancel", task_cancel, METH_NOARGS), {0}};
static PyMemberDef task_members[] = {
    {"finished", T_BOOL, offsetof(Task, finished), READONLY, NULL}, {"value", T_OBJECT, offsetof(Task, value), READONLY, NULL},
    {"error", T_OBJECT, offsetof(Task, error), READONLY, NULL}, {0},
};
static PyType_Slot task_slots[] = {
    {Py_tp_new, task_new}, {Py_tp_dealloc, task_dealloc}, {Py_tp_traverse, task_traverse}, {Py_tp_clear, task_clear},
    {Py_tp_methods, task_methods}, {Py_tp_members, task_members}, {Py_tp_call, task_call}, {0, NULL},
};

static PyType_Spec promise_spec = {"kafka_share_proxy.loop._promise.Promise", sizeof(Promise), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, promise_slots};
static PyType_Spec task_spec = {"kafka_share_proxy.loop._promise.Task", sizeof(Task), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, task_slots};

static PyMethodDef functions[] = {
    METHOD("running", running, METH_NOARGS), METHOD("on_behalf_of", on_behalf_of, METH_FASTCALL), METHOD("begin", begin, METH_VARARGS), {0},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "kafka_share_proxy.loop._promise", "See promise.", -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__promise(void) {
    name_call_soon = PyUnicode_InternFromString("call_soon");
    name_close = PyUnicode_InternFromString("close");
    name_failed = PyUnicode_InternFromString("failed");
    running_owner = Py_NewRef(Py_None); /* until begin */
    promise_type = (PyTypeObject *)PyType_FromSpec(&promise_spec);
    task_type = (PyTypeObject *)PyType_FromSpec(&task_spec);
    PyObject *module = PyModule_Create(&definition);
    if (!name_call_soon || !name_close || !name_failed || !promise_type || !task_type || !module) return NULL;
    if (PyModule_AddObjectRef(module, "Promise", (PyObject *)promise_type) < 0) return NULL;
    if (PyModule_AddObjectRef(module, "Task", (PyObject *)task_type) < 0) return NULL;
    return PyModule_AddIntConstant(module, "VERSION", VERSION) < 0 ? NULL : module;
}
