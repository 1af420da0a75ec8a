package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/sim/siblings"
)

const (
	isolationGood   = 9
	isolationPods   = 300
	isolationRounds = 3
	isolationWindow = 10 * time.Second
	isolationRate   = 180   // updates a second of the others together
	isolationFlood  = 4_000 // of the one that floods
	isolationSlow   = 2_000 // bytes a second of each watch of the one that is slow
)

// badMember is the one that misbehaves.
var badMember = fmt.Sprint("bench/member-", isolationGood)

// scaleIsolation measures how late changes of nine members are committed while the tenth is
// slow, does not answer, or floods: beside the same members with a tenth that behaves, and
// for the flood beside the same flood that another process reads and throws away.
func scaleIsolation(ctx context.Context, b *bench) (rows []row, err error) {
	good, bad, all, err := b.isolationMembers(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, good.stop(), bad.stop()) }()
	alone, together := isolationFigures{}, isolationFigures{}
	err = b.watched(ctx, all.kubeconfig, func(measure func(string) error) error {
		for range isolationRounds {
			err := errors.Join(
				measure("quiet"),
				bad.tell("slow %d", isolationSlow), measure("slow"), bad.tell("heal"),
				bad.blackHole(), measure("blackholed"), bad.resume(),
				bad.tell("churn %d", isolationFlood), measure("flooding"), bad.tell("churn %d", isolationRate/isolationGood))
			if err != nil {
				return err
			}
		}
		return nil
	}, together)
	if err != nil {
		return nil, err
	}
	drain, stop := context.WithCancel(ctx)
	defer stop()
	reader := exec.CommandContext(drain, os.Args[0], "-child", "drain", "--", bad.kubeconfig, "0")
	reader.Stderr = b.out
	if err := reader.Start(); err != nil {
		return nil, err
	}
	err = b.watched(ctx, good.kubeconfig, func(measure func(string) error) error {
		for range isolationRounds {
			err := errors.Join(bad.tell("churn %d", isolationFlood), measure("flooding"), bad.tell("churn %d", isolationRate/isolationGood))
			if err != nil {
				return err
			}
		}
		return nil
	}, alone)
	stop()
	_ = reader.Wait() //nolint:errcheck // it was killed
	if err != nil {
		return nil, err
	}
	for _, how := range []string{"slow", "blackholed", "flooding"} {
		base, beside := together["quiet"], "beside a tenth that behaves"
		if how == "flooding" {
			base, beside = alone["flooding"], fmt.Sprintf("beside %d updates/s of the tenth, read and thrown away by another process", isolationFlood)
		}
		for _, q := range []struct {
			name string
			goal float64
		}{{"p50", 1.1}, {"p99", 1.5}} {
			with, without := median(together[how][q.name]), median(base[q.name])
			rows = append(rows, lower(fmt.Sprintf("scale/isolation_%s_%s", how, q.name), "ms", with, without,
				fmt.Sprintf("%.2fx as long %s; %.0f changes of nine members in %d windows; goal %.1fx", with/without, beside, sum(together[how]["changes"]), isolationRounds, q.goal)))
		}
	}
	return rows, nil
}

func sum(v []float64) (total float64) {
	for _, x := range v {
		total += x
	}
	return total
}

// isolationMembers starts nine members and, in a process of its own, a tenth.
func (b *bench) isolationMembers(ctx context.Context) (good, bad, all *simulators, err error) {
	args := []string{"--pods", strconv.Itoa(isolationPods), "--nodes", "3", "--stamp"}
	var started []*simulators
	for _, m := range []struct{ first, members, rate int }{{0, isolationGood, isolationRate}, {isolationGood, 1, isolationRate / isolationGood}} {
		s := &simulators{}
		if s.dir, err = os.MkdirTemp(b.dir, "scale-"); err != nil {
			break
		}
		started = append(started, s)
		err = s.add(ctx, b, append(args, "--first", strconv.Itoa(m.first), "--members", strconv.Itoa(m.members), "--churn", strconv.Itoa(m.rate))...)
		if err == nil {
			err = s.writeKubeconfig()
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		all, err = mergedKubeconfig(filepath.Join(started[0].dir, "all"), started...)
	}
	if err != nil {
		for _, s := range started {
			err = errors.Join(err, s.stop())
		}
		return nil, nil, nil, err
	}
	return started[0], started[1], all, nil
}

// isolationFigures are figures of windows, by what the tenth did.
type isolationFigures map[string]map[string][]float64

// watched runs a child that watches the members, and measures as f asks.
func (b *bench) watched(ctx context.Context, kubeconfig string, f func(measure func(string) error) error, into isolationFigures) (err error) {
	cmd := exec.CommandContext(ctx, os.Args[0], "-child", "isolation", "--", kubeconfig, strconv.Itoa(isolationGood*isolationPods))
	cmd.Stderr = b.out
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close(), cmd.Wait()) }()
	out := bufio.NewScanner(pipe)
	next := func(what string) error {
		if !out.Scan() {
			return errors.New("the child has ended")
		}
		got := figures{}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			return err
		}
		b.progress("   %s %s", what, out.Text())
		if into[what] == nil {
			into[what] = map[string][]float64{}
		}
		for k, v := range got {
			into[what][k] = append(into[what][k], v)
		}
		return nil
	}
	if err := next("synced"); err != nil {
		return err
	}
	return f(func(what string) error {
		if _, err := fmt.Fprintln(in, what); err != nil {
			return err
		}
		return next(what)
	})
}

// isolation watches members until its input ends, and measures a window for each line.
func isolation(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	members, err := readContexts(kubeconfig)
	if err != nil {
		return nil, err
	}
	f, err := follow(ctx, members, "Pod")
	if err != nil {
		return nil, err
	}
	defer f.stop()
	if err := errors.Join(f.synced(ctx, pods), f.trained(ctx)); err != nil {
		return nil, err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(figures{}); err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		// What the line announces has begun; one second more is its beginning.
		if _, err := delays(ctx, f.index, time.Second); err != nil {
			return nil, err
		}
		took, err := delays(ctx, f.index, isolationWindow)
		if err != nil {
			return nil, err
		}
		if err := out.Encode(figures{"p50": ms(took, 0.5), "p99": ms(took, 0.99), "changes": float64(len(took))}); err != nil {
			return nil, err
		}
	}
	return figures{}, nil
}

// delays returns how long after their time changes of pods of well-behaved members were
// committed, for a while.
func delays(ctx context.Context, index *aggregate.Index, d time.Duration) (out []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	last := index.Snapshot()
	for {
		select {
		case <-index.Newer(last):
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = ctx.Err()
			}
			return out, err
		}
		now := time.Now()
		next := index.Snapshot()
		changes, err := index.Changes(last.Revision())
		if err != nil {
			return nil, err
		}
		for c := range changes {
			if c.After.IsZero() || c.After.Member() == badMember || c.After.Revision() > next.Revision() {
				continue
			}
			at, _ := c.After.Label(siblings.Stamp)
			if ns, err := strconv.ParseInt(at, 10, 64); err == nil {
				out = append(out, now.Sub(time.Unix(0, ns)))
			}
		}
		last = next
	}
}

// drain reads a watch of the pods of a member and throws it away.
func drain(ctx context.Context, kubeconfig string, _ int) (figures, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(config.Host, "/")+"/api/v1/pods?watch=true", nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", "application/vnd.kubernetes.protobuf;stream=watch")
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
	return figures{}, nil
}

// mergedKubeconfig returns what has no processes but the contexts of all.
func mergedKubeconfig(path string, of ...*simulators) (*simulators, error) {
	files := make([]string, len(of))
	for i, s := range of {
		files[i] = s.kubeconfig
	}
	return &simulators{kubeconfig: path}, mergeKubeconfigs(path, slices.Values(files))
}
