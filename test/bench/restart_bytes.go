package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/persistence"
)

const (
	bytesMembers   = 4    // each of the size of one of index/large_fleet_rss
	bytesPerSecond = 2000 // changes
	bytesRounds    = 1.5  // changes of each object, on average: logs are replaced by a segment about three times
)

// bytesWritten compares what is written with what has changed, and what is on disk with what is in memory.
func bytesWritten(ctx context.Context, b *bench) ([]row, error) {
	pods := b.n(23_500)
	var got figures
	if err := b.child(ctx, "restart-bytes", &got, b.corpus, strconv.Itoa(pods)); err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%.0f changes, one a commit, at %.0f/s, of %d members x %d pods", got["changes"], got["rate"], bytesMembers, pods)
	return []row{
		lower("restart/bytes_written", "B", got["written"]/got["changes"], got["changed"]/got["changes"],
			fmt.Sprintf("of a change, by all writes of the process; baseline the changed object, compressed; %.2f times as many, goal 3; %s", got["written"]/got["changed"], note)),
		lower("restart/bytes_on_disk", "MiB", got["disk"]/mib, got["index"]/mib,
			fmt.Sprintf("at the end; baseline the index, as it accounts for itself; %.2f times, at most %.2f, goal 1.5; %.2f times the bodies in memory", got["disk"]/got["index"], got["most"]/got["index"], got["disk"]/got["bodies"])),
	}, nil
}

// restartBytes changes pods of an index that is kept on disk.
func restartBytes(ctx context.Context, corpus string, pods int) (out figures, err error) {
	set, err := newPodSet(corpus, bytesMembers, pods)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "federator-bench-bytes-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := persistence.Open(persistence.Options{
		Directory: dir, Form: func(aggregate.Kind) string { return "" }, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	index, scopes, err := set.fillInto(ctx, aggregate.Options{Revisions: aggregate.Block(1), Hold: true})
	if err != nil {
		return nil, err
	}
	if _, err := store.Load(ctx, index); err != nil && !errors.Is(err, aggregate.ErrNotEmpty) { // there is nothing to load
		return nil, err
	}
	inner, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- store.Run(inner, index) }()
	defer func() { cancel(); err = errors.Join(err, <-ended) }()
	if err := poll(ctx, time.Minute, func() bool { return index.Snapshot() == index.Newest() && store.Status().Bytes > 0 }); err != nil {
		return nil, err
	}
	c := &changing{set: set, index: index, scopes: scopes, dir: dir, last: index.Snapshot(), out: figures{}}
	return c.out, c.run(ctx)
}

// changing changes objects, and adds up what that comes to.
type changing struct {
	set    *podSet
	index  *aggregate.Index
	scopes []*aggregate.Scope
	dir    string
	out    figures

	last    *aggregate.Snapshot // that was looked at
	encoder aggregate.Encoder
	buf     []byte
}

func (c *changing) run(ctx context.Context) error {
	written, err := bytesOfWrites()
	if err != nil {
		return err
	}
	tick, err := newTicks(time.Second / bytesPerSecond)
	if err != nil {
		return err
	}
	changes := int(bytesRounds * float64(c.set.members*c.set.perMember))
	started := time.Now()
	for n := range changes {
		if err := tick.wait(); err != nil {
			return errors.Join(err, tick.close())
		}
		if err := c.change(n); err != nil {
			return errors.Join(err, tick.close())
		}
		if n%bytesPerSecond == 0 {
			if err := errors.Join(ctx.Err(), c.look()); err != nil {
				return errors.Join(err, tick.close())
			}
		}
		if n%(60*bytesPerSecond) == 0 { // as serve does once a minute
			c.index.Recompress(ctx.Done())
		}
	}
	c.out["rate"] = float64(changes) / time.Since(started).Seconds()
	if err := errors.Join(tick.close(), poll(ctx, time.Minute, func() bool { return c.index.Snapshot() == c.index.Newest() })); err != nil {
		return err
	}
	if err := c.look(); err != nil {
		return err
	}
	now, err := bytesOfWrites()
	if err != nil {
		return err
	}
	c.out["written"] = now - written
	c.out["index"] = float64(c.index.Account().Total())
	for s := range c.last.Scopes("") {
		c.out["bodies"] += float64(s.Bytes)
	}
	return nil
}

// change commits another version of one pod.
func (c *changing) change(n int) error {
	m, i := n%c.set.members, rand.IntN(c.set.perMember)
	var rec aggregate.Record
	c.set.record(&rec, m, i, c.set.perMember+n)
	rec.Update = true
	rec.Body = c.set.bodies[rand.IntN(len(c.set.bodies))]
	c.scopes[m].Upsert(c.scopes[m].Item(&rec))
	_, err := c.scopes[m].Commit()
	return err
}

// look adds up what has changed, and what is on disk.
func (c *changing) look() error {
	now := c.index.Snapshot()
	changes, err := c.index.Changes(c.last.Revision())
	if err != nil {
		return err
	}
	for ch := range changes {
		if ch.After.IsZero() || ch.After.Revision() > now.Revision() {
			continue
		}
		c.buf = c.encoder.Append(c.buf[:0], ch.After)
		c.out["changes"]++
		c.out["changed"] += float64(len(c.buf))
	}
	c.last = now
	c.out["disk"], err = onDisk(c.dir)
	c.out["most"] = max(c.out["most"], c.out["disk"])
	return err
}

// bytesOfWrites is what this process has written, to files for nearly all of it.
func bytesOfWrites() (float64, error) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "wchar: "); ok {
			return strconv.ParseFloat(strings.TrimSpace(n), 64)
		}
	}
	return 0, errors.New("/proc/self/io does not say what was written")
}

// onDisk sums the files below a directory.
func onDisk(dir string) (bytes float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) { // removed meanwhile
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil {
			bytes += float64(info.Size())
		}
		return err
	})
	return bytes, err
}
