package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// federator is the real command, serving in a process of its own.
type federator struct {
	binary  string
	logFile string
	public  string // base URL of health and metrics
	admin   string // base URL of the admin endpoint

	process *exec.Cmd
	ended   chan error // one value: how the process ended
}

// buildFederator builds the command into a directory.
func buildFederator(ctx context.Context, dir string) (*federator, error) {
	f := &federator{binary: filepath.Join(dir, "federator"), logFile: filepath.Join(dir, "federator.log"), ended: make(chan error, 1)}
	build := exec.CommandContext(ctx, "go", "build", "-o", f.binary, "federator.dev/federator/cmd/federator")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build federator: %w\n%s", err, out)
	}
	return f, nil
}

// The members are on loopback here, where a real one must not be.
const configuration = `
sources:
  clusterAPI:
    kubeconfig: %q
    namespaces: [%s]
network:
  allow: [127.0.0.0/8]
listen:
  serve: 127.0.0.1:0
  admin: 127.0.0.1:0
`

var listening = regexp.MustCompile(`server=(\w+) address=(\S+)`)

// start serves with the hub's kubeconfig, and waits until the servers listen.
func (f *federator) start(ctx context.Context, hub string) error {
	config := filepath.Join(filepath.Dir(f.logFile), "federator.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, configuration, hub, namespace), 0o600); err != nil {
		return err
	}
	log, err := os.Create(f.logFile)
	if err != nil {
		return err
	}
	defer log.Close()
	f.process = exec.Command(f.binary, "serve", "--config", config)
	f.process.Stdout, f.process.Stderr = log, log
	// A Ctrl-C is for us: we end the process when we are done with it.
	f.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := f.process.Start(); err != nil {
		return err
	}
	go func() { f.ended <- f.process.Wait() }()
	err = poll(ctx, func() error {
		text, err := os.ReadFile(f.logFile)
		if err != nil {
			return err
		}
		for _, m := range listening.FindAllStringSubmatch(string(text), -1) {
			switch m[1] {
			case "serve":
				f.public = "http://" + m[2]
			case "admin":
				f.admin = "http://" + m[2]
			}
		}
		if f.public == "" || f.admin == "" {
			return errors.New("federator does not listen yet")
		}
		return f.healthy(ctx)
	})
	if err != nil {
		return errors.Join(err, f.complain(), f.stop())
	}
	return nil
}

func (f *federator) healthy(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.public+"/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/healthz: %s", resp.Status)
	}
	return nil
}

// stop ends the process in order and waits for it.
func (f *federator) stop() error {
	if err := f.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-f.ended:
		f.ended <- err
		if err != nil {
			return fmt.Errorf("federator: %w", err)
		}
		return nil
	case <-time.After(30 * time.Second):
		return errors.Join(errors.New("federator does not stop"), f.process.Process.Kill())
	}
}

// complain returns the end of the log as an error.
func (f *federator) complain() error {
	text, err := os.ReadFile(f.logFile)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("federator's log ends:\n%s", strings.Join(lines[max(0, len(lines)-20):], "\n"))
}

// print runs the command against the server.
func (f *federator) print(ctx context.Context, out io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, f.binary, append(args, "--server", f.admin)...)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("federator %s: %w: %s", strings.Join(args, " "), err, &stderr)
	}
	return nil
}

// show prints the table of members whenever it has news, until the members are
// as they should be.
func (d *demo) show(ctx context.Context, want func(answer) error) error {
	last := ""
	return poll(ctx, func() error {
		var raw bytes.Buffer
		if err := d.federator.print(ctx, &raw, "members", "-o", "json"); err != nil {
			return err
		}
		var a answer
		if err := json.Unmarshal(raw.Bytes(), &a); err != nil {
			return err
		}
		err := want(a)
		if news := a.news(); news != last && len(a.Members) > 0 || err == nil {
			last = news
			fmt.Fprintln(d.out)
			if err := d.federator.print(ctx, d.out, "members"); err != nil {
				return err
			}
		}
		return err
	})
}

// patience is how long a change may take to show.
const patience = 2 * time.Minute

// poll calls check until it returns nil, and returns its last error when time
// is up.
func poll(ctx context.Context, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// answer is what `federator members -o json` prints.
type answer struct {
	Members []clusterinformers.MemberStatus `json:"members"`
}

func (a answer) member(name string) (clusterinformers.MemberStatus, error) {
	for _, m := range a.Members {
		if m.Name == namespace+"/"+name {
			return m, nil
		}
	}
	return clusterinformers.MemberStatus{}, fmt.Errorf("%s is not known", name)
}

// news tells tables apart that are worth a look each.
func (a answer) news() string {
	var b strings.Builder
	for _, m := range a.Members {
		fmt.Fprintln(&b, m.Name, m.State, m.Reason, m.Synced, m.Scopes[aggregate.Stale] > 0)
	}
	return b.String()
}

// enoughKinds is the number of kinds that a member must have objects of.
const enoughKinds = 12

// complete reports whether a member is followed and holds all there is.
func (a answer) complete(name string) error {
	m, err := a.member(name)
	if err != nil {
		return err
	}
	if err := a.is(name, clusterinformers.Connected); err != nil {
		return err
	}
	kinds := 0
	for _, d := range m.Details {
		if !d.State.Complete() {
			return fmt.Errorf("%s: %s is %s %s", name, d.Kind, d.State, d.Reason)
		}
		if d.Objects > 0 {
			kinds++
		}
	}
	if !m.Synced || kinds < enoughKinds {
		return fmt.Errorf("%s has objects of %d kinds, synced: %v", name, kinds, m.Synced)
	}
	return nil
}

func (a answer) is(name string, state clusterinformers.Contact) error {
	m, err := a.member(name)
	if err == nil && m.State != state {
		err = fmt.Errorf("%s is %s %s: %s", name, m.State, m.Reason, m.Message)
	}
	return err
}

// stale reports whether a member's objects are all there, as of the last
// contact.
func (a answer) stale(name string) error {
	m, err := a.member(name)
	if err == nil && (m.Scopes[aggregate.Stale] == 0 || m.Scopes[aggregate.Synced] > 0 || m.Objects == 0) {
		err = fmt.Errorf("%s has %d objects, scopes %v", name, m.Objects, m.Scopes)
	}
	return err
}

// relisted is an error if a member was listed again after its first lists.
func (a answer) relisted(name string) error {
	m, err := a.member(name)
	for _, d := range m.Details {
		if n := d.Relists["initial"]; n != 1 || len(d.Relists) != 1 {
			err = errors.Join(err, fmt.Errorf("%s: %s was listed anew: %v", name, d.Kind, d.Relists))
		}
	}
	return err
}
