package faults

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// number returns an environment variable's value.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// processFaults befall federator itself.
var processFaults = []fault{
	{
		name: "federator SIGSTOP", hold: 5 * time.Minute, brief: 3 * time.Second,
		inject: func(r *rig) error { return syscall.Kill(r.process.PID(), syscall.SIGSTOP) },
		heal:   func(r *rig) error { return syscall.Kill(r.process.PID(), syscall.SIGCONT) },
		lists:  unbounded,
	},
	{name: "federator SIGKILL at random points", short: true, inject: killAgain, note: func(r *rig) string { return fmt.Sprint(r.kills, " times") }},
	{
		name: "memory limit (cgroup v2 memory.max)", lists: unbounded, able: ableToLimit,
		inject: func(r *rig) error { return r.press(r.limitGroup) }, heal: revive, note: diedOf,
	},
	{
		name: "memory limit (RLIMIT_DATA)", lists: unbounded,
		inject: func(r *rig) error { return r.press(r.limitData) }, heal: revive, note: diedOf,
	},
}

// killAgain kills federator again and again, at random points of what it does under writes.
func killAgain(r *rig) error {
	r.kills = 3
	if all() {
		r.kills = number(r.t, "KILLS", 200)
	}
	ctx := r.t.Context()
	for n := range r.kills {
		written := r.written() + int64(r.rng.IntN(40))
		if err := r.until("writes", func() bool { return r.written() >= written }); err != nil {
			return err
		}
		r.kill()
		r.start()
		if r.rng.IntN(4) == 0 {
			continue // some while it starts
		}
		err := r.untilErr(func() error {
			_, _, err := r.list(ctx, "https://"+r.query+"/fleet"+configMaps, 0)
			return err
		})
		if err != nil {
			return fmt.Errorf("after %d kills: %w", n+1, err)
		}
	}
	return nil
}

// startAnew starts federator without anything that it has kept.
func (r *rig) startAnew() {
	r.kill()
	r.do(os.RemoveAll(r.kept()))
	r.start()
}

// kept is the directory that the index is kept in.
func (r *rig) kept() string { return filepath.Join(r.dir, "kept", "index") }

// written counts all writes.
func (r *rig) written() (n int64) {
	for _, m := range r.members {
		n += m.written.Load()
	}
	return n
}

// cgroup is the directory of the tests' own cgroup, of version 2.
func cgroup() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "cgroup2" {
			continue
		}
		for own := range strings.Lines(string(text)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(own), "0::"); ok {
				return filepath.Join(f[1], path), nil
			}
		}
	}
	return "", errors.New("there is no cgroup of version 2")
}

// ableToLimit finds out whether federator's memory can be limited by a cgroup.
func ableToLimit(r *rig) string {
	own, err := cgroup()
	if err != nil {
		return err.Error()
	}
	controllers, err := os.ReadFile(filepath.Join(own, "cgroup.controllers"))
	if err != nil {
		return err.Error()
	}
	if !strings.Contains(" "+string(controllers)+" ", "memory") {
		return fmt.Sprintf("the controllers of the cgroup are %q", strings.TrimSpace(string(controllers)))
	}
	r.group = filepath.Join(own, fmt.Sprint("faults-", os.Getpid()))
	if err := os.Mkdir(r.group, 0o755); err != nil {
		return err.Error()
	}
	r.t.Cleanup(func() { _ = os.Remove(r.group) }) // it is empty once federator has ended
	if _, err := os.Stat(filepath.Join(r.group, "memory.max")); err != nil {
		return "memory is not delegated to cgroups below the tests' own"
	}
	return ""
}

// spare is how much more memory federator may take, once it is limited.
const spare = 24 << 20

func (r *rig) limitGroup() error {
	if err := os.WriteFile(filepath.Join(r.group, "cgroup.procs"), fmt.Append(nil, r.process.PID()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.group, "memory.max"), fmt.Append(nil, spare), 0o644)
}

var dataLine = regexp.MustCompile(`(?m)^VmData:\s+(\d+) kB`)

func (r *rig) limitData() error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.process.PID()))
	if err != nil {
		return err
	}
	m := dataLine.FindSubmatch(status)
	if m == nil {
		return errors.New("the kernel does not say how much data federator has")
	}
	kilobytes, err := strconv.ParseUint(string(m[1]), 10, 64)
	if err != nil {
		return err
	}
	limit := kilobytes<<10 + spare
	return unix.Prlimit(r.process.PID(), unix.RLIMIT_DATA, &unix.Rlimit{Cur: limit, Max: limit}, nil)
}

// press limits federator's memory and creates objects until it has died of that.
func (r *rig) press(limit func() error) error {
	ctx, m := r.t.Context(), r.members[0]
	before, err := r.lists(ctx)
	if err != nil {
		return err
	}
	if err := limit(); err != nil {
		return err
	}
	r.died = 0
	for n := range 400 {
		if !r.process.Alive() {
			r.died = n
			r.ended(before)
			break
		}
		text := make([]byte, 256<<10)
		for i := range text {
			text[i] = 'a' + byte(r.rng.IntN(26)) // compresses little
		}
		if err := m.send(ctx, http.MethodPost, widgets, object("faults.example/v1", "Widget", fmt.Sprint("big-", n), m.name, `"set":"big"`, fmt.Sprintf(`"spec":{"size":1,"text":%q}`, text))); err != nil {
			return err
		}
	}
	return nil
}

// revive starts federator again, if it has died, and deletes what it died of.
func revive(r *rig) error {
	m := r.members[0]
	err := m.writer.Delete().AbsPath(widgets).Param("labelSelector", "set=big").Do(r.t.Context()).Error()
	if !r.process.Alive() {
		r.start()
		return err
	}
	r.kill() // its limit stays as long as it lives
	r.start()
	return err
}

func diedOf(r *rig) string {
	if r.died == 0 {
		return "it lived on"
	}
	return fmt.Sprintf("it died after %d objects of 256 KiB, and was started without a limit", r.died)
}
