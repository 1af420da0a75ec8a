package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// exitLimit is how long an end may take before the process is killed.
const exitLimit = 2 * time.Minute

// scaleExit measures the time from SIGTERM to the end of the command, with members that
// answer, that do not, and that are gone.
func scaleExit(ctx context.Context, b *bench) (rows []row, err error) {
	o := b.scaleOpts
	sims, err := b.simulators(ctx, o.members, o.kinds, o.pods, 3)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sims.stop()) }()
	for _, end := range []struct {
		name   string
		before func() error
		after  func() error
	}{
		{"alive", nil, nil},
		{"blackholed", sims.blackHole, sims.resume},
		{"gone", func() error { sims.kill(); return nil }, nil},
	} {
		took, err := b.exit(ctx, sims, end.before)
		if end.after != nil {
			err = errors.Join(err, end.after())
		}
		if err != nil {
			return rows, fmt.Errorf("%s: %w", end.name, err)
		}
		note := fmt.Sprintf("%d members x %d kinds; from SIGTERM; goal 5", o.members, o.kinds)
		if took >= exitLimit {
			note += "; killed after that"
		}
		rows = append(rows, row{Name: "scale/exit_" + end.name, Unit: "s", Value: took.Seconds(), Note: note})
	}
	return rows, nil
}

// unanswered is how long members have not answered when the command is ended: pings have
// failed by then.
const unanswered = 15 * time.Second

func (b *bench) exit(ctx context.Context, sims *simulators, before func() error) (took time.Duration, err error) {
	h, err := b.startHub(ctx, sims, hubOptions{gogc: 100, library: b.scaleOpts.library})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, h.kill()) }()
	if _, err := h.settled(ctx, b.scaleOpts.members); err != nil {
		return 0, err
	}
	if before != nil {
		if err := before(); err != nil {
			return 0, err
		}
		if _, err := h.idle(ctx, unanswered); err != nil {
			return 0, err
		}
	}
	started := time.Now()
	_ = h.Stop(exitLimit) //nolint:errcheck // How long it takes is the figure, however it ends.
	return time.Since(started), nil
}
