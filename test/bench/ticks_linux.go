package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ticks wakes one goroutine at a rate, by a timer of the kernel. While the collector
// uses the processors that would be idle nobody looks at Go's own timers: they came up
// to 20 ms late, and what they woke then made up for it in bursts. What arrives from
// outside, as deltas do, is looked at.
type ticks struct {
	file  *os.File
	ready uint64
}

func newTicks(every time.Duration) (*ticks, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("timer: %w", err)
	}
	at := unix.NsecToTimespec(int64(every))
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: at, Value: at}, nil); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("timer: %w", err)
	}
	return &ticks{file: os.NewFile(uintptr(fd), "timer")}, nil
}

// wait waits for the next tick. None is left out: those that were missed are over at
// once.
func (t *ticks) wait() error {
	if t.ready == 0 {
		var n [8]byte
		if _, err := t.file.Read(n[:]); err != nil {
			return err
		}
		t.ready = binary.NativeEndian.Uint64(n[:])
	}
	t.ready--
	return nil
}

func (t *ticks) close() error { return t.file.Close() }
