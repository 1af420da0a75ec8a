// Command demo shows what federator does on a fleet of real clusters: a hub with
// Cluster API and three members with workloads, one of them behind NAT, policies in a local git
// repository, and the real command, built from this tree. It shows the fleet in one view, what
// violates policies across clusters, a commit that is active within seconds, a
// correction, a bad commit that changes nothing, a halt that waits for an acknowledgement, and
// a plan that two people approve, whose rollout stops itself after the first cluster.
//
// What it prints after a $ is run as it stands, and what follows is its output. Each
// step fails unless it shows what it says. The demo stays up for exploring until it
// is interrupted; with DEMO=ci in the environment it ends after the last step.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"federator.dev/federator/test/git"
	"federator.dev/federator/test/kube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	d := &demo{out: os.Stdout, bold: term.IsTerminal(int(os.Stdout.Fd()))}
	err := d.run(ctx, os.Getenv("DEMO") == "ci")
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted && os.Getenv("DEMO") == "ci":
		fmt.Fprintln(os.Stderr, "demo: interrupted")
		os.Exit(1)
	case err != nil && !interrupted:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo is the fleet, the federator that watches it, and where output goes.
type demo struct {
	out  io.Writer
	bold bool // out is a terminal

	dir       string // where commands run; removed at the end
	started   time.Time
	fleet     *kube.Fleet
	federator *federator
	agent     process // of the member behind NAT
	page      *page   // nil before the web UI is open
	repo      *git.Repo
}

// run plays the story and, unless it is for ci, waits for ctx to end. Nothing is left
// of it, however it ends.
func (d *demo) run(ctx context.Context, ci bool) (err error) {
	d.started = time.Now()
	if d.dir, err = os.MkdirTemp("", "federator-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	stop, err := d.boot(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	for _, s := range d.story() {
		d.say("%s", s.title)
		if err := s.run(ctx); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", s.title, err), d.federator.complain())
		}
	}
	if ci {
		d.say("Every step has shown what it says.")
		return nil
	}
	d.explore()
	select {
	case <-ctx.Done():
		d.say("Stopping.")
		return nil
	case err := <-d.federator.ended:
		d.federator.ended <- err
		return errors.Join(fmt.Errorf("federator has ended: %w", err), d.federator.complain())
	}
}

// say prints what happens next.
func (d *demo) say(format string, args ...any) {
	line := fmt.Sprintf("%5.1fs  ", time.Since(d.started).Seconds()) + fmt.Sprintf(format, args...)
	if d.bold {
		line = "\x1b[1m" + line + "\x1b[0m"
	}
	fmt.Fprintf(d.out, "\n%s\n", line)
}

// note prints what was measured.
func (d *demo) note(format string, args ...any) {
	fmt.Fprintf(d.out, "  -> "+format+"\n", args...)
}
