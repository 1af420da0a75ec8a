// Package listwatch is the list and watch protocol of the Kubernetes API as a state
// machine: which request comes next, at which resourceVersion, and when; what is done
// with what arrives; from where a watch resumes. It sends nothing, reads no clock and
// starts no goroutine: its driver says what has happened, and does what it is told.
//
// A scope that is kept by it is never empty by mistake: what is listed replaces what is
// held once it is complete, and a watch that breaks resumes at the last resourceVersion
// that was applied. Only an answer that says so (410, or a resourceVersion that the server
// has not reached) leads to another list.
//
// A Machine is a value of some 200 bytes, not safe for concurrent use.
package listwatch
