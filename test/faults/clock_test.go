package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// clockFaults befall the clock of federator's machine, of which its own view is changed: the command
// is built with a package time that adds an offset to the wall clock, and not to the monotonic one.
var clockFaults = []fault{
	{
		name: "clock jumps an hour ahead, then two back", hold: 20 * time.Second, brief: 3 * time.Second,
		inject: func(r *rig) error {
			if err := r.buildWithClock(); err != nil {
				return err
			}
			r.kill()
			r.jumpy = true
			r.start()
			r.settle()
			return r.setClock(time.Hour)
		},
		during: func(r *rig) error {
			err := r.setClock(-time.Hour)
			select {
			case <-time.After(5 * time.Second): // the fault is this long
			case <-r.t.Context().Done():
			}
			return err
		},
		heal: func(r *rig) error { return r.setClock(0) },
	},
}

// clockFile says by how many seconds the clock is wrong.
func (r *rig) clockFile() string { return filepath.Join(r.dir, "clock") }

func (r *rig) setClock(offset time.Duration) error {
	return os.WriteFile(r.clockFile(), fmt.Append(nil, int64(offset/time.Second)), 0o600)
}

const (
	now     = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	nowPlus = "// ClockOffset is in seconds.\nvar ClockOffset int64\n\n" + now + "\tsec += ClockOffset\n"
)

// buildWithClock builds the command with a clock that can be set.
func (r *rig) buildWithClock() error {
	ctx := r.t.Context()
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	if strings.Count(string(text), now) != 1 {
		return errors.New("package time does not read the clock as it did")
	}
	replaced, hook := filepath.Join(r.dir, "time.go"), filepath.Join("testdata", "clock.go.txt")
	if hook, err = filepath.Abs(hook); err != nil {
		return err
	}
	command, err := filepath.Abs("../../cmd/federator/clock.go")
	if err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: replaced, command: hook}})
	if err != nil {
		return err
	}
	file := filepath.Join(r.dir, "overlay.json")
	if err := errors.Join(os.WriteFile(replaced, []byte(strings.Replace(string(text), now, nowPlus, 1)), 0o600), os.WriteFile(file, overlay, 0o600)); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-overlay", file, "-o", r.binary+"-clock", "federator.dev/federator/cmd/federator").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build federator with a clock: %w\n%s", err, out)
	}
	return nil
}
