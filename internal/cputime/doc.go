// Package cputime says what work has taken of the machine's CPUs, however long it waited: for a
// busy machine, the network, or a lock.
//
// The time of a thread is that of a goroutine only as long as this is locked to it, and each locked
// goroutine that waits takes a thread: what may wait is measured by what the process has
// taken meanwhile, which is at least its own time.
//
// Its functions are safe for concurrent use.
package cputime
