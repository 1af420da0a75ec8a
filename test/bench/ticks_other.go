//go:build !linux

package main

import "time"

// ticks wakes one goroutine at a rate.
type ticks struct {
	every time.Duration
	next  time.Time
}

func newTicks(every time.Duration) (*ticks, error) {
	return &ticks{every: every, next: time.Now().Add(every)}, nil
}

// wait waits for the next tick. None is left out: those that were missed are over at
// once.
func (t *ticks) wait() error {
	time.Sleep(time.Until(t.next))
	t.next = t.next.Add(t.every)
	return nil
}

func (*ticks) close() error { return nil }
