package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// patience is how long a change may take to show, on a machine with much else to do.
const patience = time.Minute

// await calls check until it returns nil. If time runs out, the last error says why.
func await(ctx context.Context, every time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := error(nil); ; {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil { // else it only says that time was up
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", patience, last)
		case <-tick.C:
		}
	}
}

// output runs a line as a shell in the demo's directory does: kubectl and federator
// are those of this tree, and KUBECONFIG is the hub.
func (d *demo) output(ctx context.Context, line string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), d.environment()...)
	// A Ctrl-C is for us; whatever the line has started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", line, errors.Join(context.Cause(ctx), err), strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

func (d *demo) environment() []string {
	return []string{
		"PATH=" + filepath.Join(d.dir, "bin") + string(os.PathListSeparator) + os.Getenv("PATH"),
		"KUBECONFIG=hub.yaml", "KUBECACHEDIR=" + filepath.Join(d.dir, "cache"),
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_PAGER=cat",
	}
}

// show runs a line and prints it with its output.
func (d *demo) show(ctx context.Context, line string) error {
	out, err := d.output(ctx, line)
	if err == nil {
		d.print(line, out)
	}
	return err
}

// probe is a line to run, and what its output must become.
type probe struct {
	line string
	want func(out string) error
}

// until runs lines, one after the other.
func (d *demo) until(ctx context.Context, probes ...probe) error {
	for _, p := range probes {
		if err := d.await(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// await runs a line until its output is as wanted, and prints it then.
func (d *demo) await(ctx context.Context, p probe) error {
	var out string
	err := await(ctx, 100*time.Millisecond, func(ctx context.Context) (err error) {
		if out, err = d.output(ctx, p.line); err != nil {
			return err
		}
		if err = p.want(out); err != nil {
			err = fmt.Errorf("%s: %w:\n%s", p.line, err, out)
		}
		return err
	})
	if err == nil {
		d.print(p.line, out)
	}
	return err
}

func (d *demo) print(line, out string) {
	if d.bold {
		line = "\x1b[1m" + line + "\x1b[0m"
	}
	fmt.Fprintf(d.out, "\n  $ %s\n", strings.ReplaceAll(line, "\n", "\n    "))
	for l := range strings.Lines(out) {
		fmt.Fprint(d.out, "  "+strings.TrimRight(l, " \n")+"\n")
	}
}

// has says whether what kubectl prints has a row with these cells, each COLUMN=value.
func has(out string, cells ...string) error {
	header, rows, _ := strings.Cut(out, "\n")
	at := columns.FindAllStringIndex(header, -1)
	for row := range strings.Lines(rows) {
		got := map[string]bool{}
		for i, c := range at {
			end := len(row)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			if end = min(end, len(row)); c[0] < end {
				got[header[c[0]:c[1]]+"="+strings.TrimSpace(row[c[0]:end])] = true
			}
		}
		if !slices.ContainsFunc(cells, func(c string) bool { return !got[c] }) {
			return nil
		}
	}
	return fmt.Errorf("no row has %s", strings.Join(cells, ", "))
}

// columns are separated by two spaces at least.
var columns = regexp.MustCompile(`\S+( \S+)*`)

// rows is an error unless there are so many rows with a cell.
func rows(out, cell string, n int) error {
	header, all, _ := strings.Cut(out, "\n")
	got := 0
	for row := range strings.Lines(all) {
		if has(header+"\n"+row, cell) == nil {
			got++
		}
	}
	if got != n {
		return fmt.Errorf("%d rows have %s, not %d", got, cell, n)
	}
	return nil
}

// says is an error unless the output is this text.
func says(out, text string) error {
	if strings.TrimSpace(out) != text {
		return fmt.Errorf("it does not say %q", text)
	}
	return nil
}
