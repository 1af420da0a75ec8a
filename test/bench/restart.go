package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/pkg/policy"
)

// restartConfig is a configuration of the command that serves queries, on a kubeconfig's members. What is
// kept and which policies there are follows.
const restartConfig = `sources:
  contexts:
    path: %s
    names: ["*"]
    noExec: true
giveUpAfter: 1h
index:
  revisionsFile: %s
query:
  listen: 127.0.0.1:0
  kubeconfig: %s
listen:
  serve: 127.0.0.1:0
  admin: 127.0.0.1:0
  pprof: true
persistence: {%s}
policies: {%s}
`

// restarts is how often each start after a SIGKILL is measured.
const restarts = 3

// restartRig is the fleet of index/large_fleet_rss, and the command, which is started on it again and again.
type restartRig struct {
	b                    *bench
	sims                 *simulators
	binary, dir          string
	members, pods, nodes int // pods and nodes of all members
	policies             string
}

// restarting runs f with a fleet whose members stay up.
func (b *bench) restarting(ctx context.Context, f func(context.Context, *restartRig) ([]row, error)) (rows []row, err error) {
	members, pods, nodes := 20, b.n(23_500), b.n(160)
	sims, err := b.simulators(ctx, members, 0, pods, nodes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sims.stop()) }()
	r := &restartRig{b: b, sims: sims, members: members, pods: members * pods, nodes: members * nodes}
	if r.binary, err = b.measured(ctx); err != nil {
		return nil, err
	}
	if r.dir, err = os.MkdirTemp(b.dir, "restart-"); err != nil {
		return nil, err
	}
	if r.policies, err = tenPolicies(r.dir); err != nil {
		return nil, err
	}
	return f(ctx, r)
}

// tenPolicies writes the policies of policy/full_reevaluation, and says so in terms of the configuration.
func tenPolicies(dir string) (config string, err error) {
	rules := slices.Concat(compared, more)
	set, bindings, err := loadRules(rules, "")
	if err != nil {
		return "", err
	}
	at := filepath.Join(dir, "policies")
	if err := os.Mkdir(at, 0o700); err != nil {
		return "", err
	}
	for _, r := range rules {
		f := r.source("")
		if err := os.WriteFile(filepath.Join(at, f.Path), f.Data, 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string][]policy.Binding{"bindings": bindings})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "bindings.yaml")
	if _, err := policy.ParseBindings(set, file, text); err != nil {
		return "", err
	}
	return fmt.Sprintf("dirs: [%s], bindings: %s", at, file), os.WriteFile(file, text, 0o600)
}

// start is what a start has come to.
type start struct {
	answered, exact time.Duration // from the start of the process: the first right count, and all scopes kept up to date
	known           time.Duration // until all verdicts are
	cpu, reads      float64
	peak            float64 // RSS, bytes
	verdicts        float64
}

// started starts the command, keeping its index or not, and ends it by SIGKILL after a while.
func (r *restartRig) started(ctx context.Context, keep, policies bool, profile string, then func(h *hub) error) (s start, err error) {
	query := filepath.Join(r.dir, "query.kubeconfig")
	if err := os.Remove(query); err != nil && !errors.Is(err, os.ErrNotExist) {
		return s, err
	}
	kept, bound := "off: true", ""
	if keep {
		kept = "directory: " + filepath.Join(r.dir, "kept")
	}
	if policies {
		bound = r.policies
	}
	before, err := r.sims.stats()
	if err != nil {
		return s, err
	}
	config := fmt.Sprintf(restartConfig, r.sims.kubeconfig, filepath.Join(r.dir, "revisions"), query, kept, bound)
	h, err := r.b.serveHub(ctx, r.binary, r.dir, config, hubOptions{gogc: gcPercent, profile: profile})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, h.kill()) }()
	if err := r.answers(ctx, h, query, &s); err != nil {
		return s, err
	}
	if policies {
		m, err := h.known(ctx, 50*time.Millisecond)
		if err != nil {
			return s, err
		}
		s.known, s.verdicts = time.Since(h.started), m.sum("federator_policy_verdicts")
	}
	after, err := r.sims.stats()
	if err != nil {
		return s, err
	}
	at, err := h.usage()
	if err != nil {
		return s, err
	}
	s.reads, s.cpu = after.Reads-before.Reads, at.cpu
	r.b.progress("   kept %t, policies %t: answered after %.2f s, exact %.2f, verdicts %.2f, %.1f CPU-s, %.0f lists, peak %.0f MiB", keep, policies, s.answered.Seconds(), s.exact.Seconds(), s.known.Seconds(), s.cpu, s.reads, at.peak/mib)
	if then != nil {
		if err := then(h); err != nil {
			return s, err
		}
	}
	if at, err = h.usage(); err != nil {
		return s, err
	}
	s.peak = at.peak
	return s, nil
}

// answers waits until the command answers with the right counts, and until it keeps all scopes of all
// members up to date.
func (r *restartRig) answers(ctx context.Context, h *hub, query string, s *start) error {
	var client *queries
	err := h.poll(ctx, settleLimit, 10*time.Millisecond, func() (err error) {
		if client == nil {
			if client, err = newQueries(query); err != nil {
				return err
			}
		}
		for resource, want := range map[string]int{"pods": r.pods, "nodes": r.nodes} {
			got, err := client.count(ctx, resource)
			if err != nil {
				return err
			}
			if got != want {
				return fmt.Errorf("%d %s, want %d", got, resource, want)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.answered = time.Since(h.started)
	err = h.poll(ctx, settleLimit, 10*time.Millisecond, func() error {
		m, err := h.metrics(ctx)
		if err != nil {
			return err
		}
		all := m.sum("federator_index_scopes")
		synced := m.sum("federator_index_scopes", `state="Synced"`) + m.sum("federator_index_scopes", `state="NotServed"`)
		if n := m.sum("federator_index_members"); int(n) < r.members || synced < all {
			return fmt.Errorf("%.0f of %d members have joined, %.0f of %.0f scopes are synced", n, r.members, synced, all)
		}
		return nil
	})
	s.exact = time.Since(h.started)
	return err
}

// queries is a client of the query API.
type queries struct {
	host   string
	client *http.Client
}

// newQueries reads the query API's kubeconfig, which is there once it listens.
func newQueries(kubeconfig string) (*queries, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	return &queries{config.Host, client}, err
}

// count counts the objects of a resource.
func (q *queries) count(ctx context.Context, resource string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, q.host+"/query/v1/count?resource="+resource, nil)
	if err != nil {
		return 0, err
	}
	resp, err := q.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var got struct{ Total int }
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("count of %s: %s: %w", resource, resp.Status, err)
	}
	return got.Total, nil
}

// medianStart is the start that took neither the least nor the most; all is sorted then.
func medianStart(all []start, by func(start) time.Duration) start {
	slices.SortFunc(all, func(a, b start) int { return int(by(a) - by(b)) })
	return all[len(all)/2]
}

// restartExact measures the first exact answer: without what was kept, and after a SIGKILL amid updates.
func restartExact(ctx context.Context, b *bench) ([]row, error) {
	return b.restarting(ctx, func(ctx context.Context, r *restartRig) ([]row, error) { return r.exact(ctx) })
}

func (r *restartRig) exact(ctx context.Context) ([]row, error) {
	bare, err := r.started(ctx, false, false, "", nil)
	if err != nil {
		return nil, err
	}
	var steady float64
	_, err = r.started(ctx, true, false, "", func(h *hub) error {
		if err := r.sims.tell("churn %d", r.b.n(500)); err != nil {
			return err
		}
		if _, err := h.idle(ctx, time.Minute); err != nil { // so that logs continue the segments
			return err
		}
		var err error
		steady, err = r.rest(ctx, h)
		return err
	})
	if err != nil {
		return nil, err
	}
	var all []start
	for n := range restarts {
		s, err := r.started(ctx, true, false, fmt.Sprint("restart-", n), func(h *hub) error {
			_, err := h.idle(ctx, 10*time.Second) // what comes right after may need more
			return err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	if err := r.sims.tell("churn 0"); err != nil {
		return nil, err
	}
	s := medianStart(all, func(s start) time.Duration { return s.exact })
	size := fmt.Sprintf("%d pods + %d nodes, %d members, GOGC=%d, %d updates/s", r.pods, r.nodes, r.members, gcPercent, r.b.n(500))
	return []row{
		lower("restart/exact", "s", s.exact.Seconds(), bare.exact.Seconds(), fmt.Sprintf("%s; SIGKILL to counts exact and all scopes synced, median of %d (%.2f to %.2f); right counts after %.2f, %.1f CPU-s; baseline nothing kept; goal 5",
			size, restarts, all[0].exact.Seconds(), all[restarts-1].exact.Seconds(), s.answered.Seconds(), s.cpu)),
		{Name: "restart/exact_lists", Unit: "", Value: s.reads, Baseline: bare.reads, Note: "lists, and watches with initial events, that the members had; goal 0"},
		lower("restart/exact_cpu", "CPU-s", s.cpu, bare.cpu, "until then"),
		{Name: "restart/exact_peak", Unit: "x", Value: s.peak / steady, Note: fmt.Sprintf("peak RSS by then, %.0f MiB, by that of the process before at rest, %.0f; nothing kept %.0f; goal 1.3", s.peak/mib, steady/mib, bare.peak/mib)},
	}, nil
}

// rest returns what a process needs at rest, half a minute after a collection.
func (r *restartRig) rest(ctx context.Context, h *hub) (float64, error) {
	if _, err := h.liveHeap(ctx, "restart-steady"); err != nil {
		return 0, err
	}
	if _, err := h.idle(ctx, 30*time.Second); err != nil {
		return 0, err
	}
	at, err := h.usage()
	return at.rss, err
}

// restartVerdicts measures the time to all verdicts.
func restartVerdicts(ctx context.Context, b *bench) ([]row, error) {
	return b.restarting(ctx, func(ctx context.Context, r *restartRig) ([]row, error) { return r.verdicts(ctx) })
}

func (r *restartRig) verdicts(ctx context.Context) ([]row, error) {
	bare, err := r.started(ctx, false, true, "", nil)
	if err != nil {
		return nil, err
	}
	if _, err := r.started(ctx, true, true, "", nil); err != nil {
		return nil, err
	}
	var all []start
	for n := range restarts {
		s, err := r.started(ctx, true, true, fmt.Sprint("restart-verdicts-", n), nil)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	s := medianStart(all, func(s start) time.Duration { return s.known })
	return []row{
		lower("restart/verdicts", "s", s.known.Seconds(), bare.known.Seconds(), fmt.Sprintf("all of %.0f verdicts of 10 policies, median of %d (%.1f to %.1f); exact after %.2f, %.0f CPU-s, peak %.0f MiB; baseline nothing kept, %.0f CPU-s, peak %.0f; goal 25",
			s.verdicts, restarts, all[0].known.Seconds(), all[restarts-1].known.Seconds(), s.exact.Seconds(), s.cpu, s.peak/mib, bare.cpu, bare.peak/mib)),
		{Name: "restart/verdicts_lists", Unit: "", Value: s.reads, Baseline: bare.reads, Note: "lists, and watches with initial events, that the members had; goal 0"},
	}, nil
}
