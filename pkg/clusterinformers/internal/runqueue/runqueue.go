// Package runqueue runs many small tasks on a few workers, fairly by group: a group whose
// tasks always have more to do gets as many turns as one that rarely does.
//
// A task is run by one worker at a time. It has no goroutine, and costs some 40 bytes
// while nothing wakes it.
package runqueue

import (
	"context"
	"sync"
)

// Runner is what a task does. Run must not block. It reports whether there is more to do:
// then it is the last of its group's to be run again.
type Runner interface{ Run() (again bool) }

// Queue is the tasks that are to be run.
type Queue struct {
	mu      sync.Mutex
	changed sync.Cond
	first   *Group // groups that have tasks to run
	last    *Group
	closed  bool
}

// New returns an empty queue.
func New() *Queue {
	q := &Queue{}
	q.changed.L = &q.mu
	return q
}

// Group is tasks that share turns. Its queue's mu guards it.
type Group struct {
	queue       *Queue
	next        *Group
	queued      bool
	first, last *Task
}

// Group returns a new group.
func (q *Queue) Group() *Group { return &Group{queue: q} }

// Task is something that is run whenever it was woken.
type Task struct {
	group  *Group
	runner Runner
	next   *Task
	state  state
}

// state is of a task. The queue's mu guards it.
type state uint8

const (
	idle    state = iota
	queued        // in its group's list
	running       // by a worker
	woken         // while it was running
)

// Init makes t a task of the group. It is called once, before any other method.
func (g *Group) Init(t *Task, r Runner) { t.group, t.runner = g, r }

// Wake has the task run, once more if it is running. It may be called from anywhere.
func (t *Task) Wake() {
	q := t.group.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	switch t.state {
	case idle:
		q.addLocked(t)
	case running:
		t.state = woken
	case queued, woken:
	}
}

func (q *Queue) addLocked(t *Task) {
	t.state = queued
	g := t.group
	if g.last == nil {
		g.first = t
	} else {
		g.last.next = t
	}
	g.last = t
	q.addGroupLocked(g)
	q.changed.Signal()
}

func (q *Queue) addGroupLocked(g *Group) {
	if g.queued || g.first == nil {
		return
	}
	g.queued = true
	if q.last == nil {
		q.first = g
	} else {
		q.last.next = g
	}
	q.last = g
}

// takeLocked returns the task whose turn it is, nil when there is none.
func (q *Queue) takeLocked() *Task {
	g := q.first
	if g == nil {
		return nil
	}
	if q.first = g.next; q.first == nil {
		q.last = nil
	}
	g.next, g.queued = nil, false
	t := g.first
	if g.first = t.next; g.first == nil {
		g.last = nil
	}
	t.next, t.state = nil, running
	q.addGroupLocked(g)
	return t
}

// Run runs tasks on some workers until ctx is done. Tasks that are woken afterwards do not
// run. A Runner that panics ends the process: it must recover.
func (q *Queue) Run(ctx context.Context, workers int) {
	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.closed = true
		q.changed.Broadcast()
	})
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for range workers {
		wg.Go(q.work)
	}
}

func (q *Queue) work() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		var t *Task
		for t = q.takeLocked(); t == nil && !q.closed; t = q.takeLocked() {
			q.changed.Wait()
		}
		if q.closed {
			return
		}
		q.mu.Unlock()
		again := t.runner.Run()
		q.mu.Lock()
		if again || t.state == woken {
			q.addLocked(t)
		} else {
			t.state = idle
		}
	}
}
