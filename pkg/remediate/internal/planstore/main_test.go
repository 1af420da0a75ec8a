package planstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/hubclient"
	"federator.dev/federator/pkg/remediate/internal/plans"
	"federator.dev/federator/pkg/remediate/internal/planstore"
	"federator.dev/federator/test/kube"
)

// shared is a hub with the CRDs. Its garbage collector does not run.
var shared struct {
	kube.Shared
	http     *http.Client
	policies atomic.Int64
}

func TestMain(m *testing.M) {
	shared.Prepare = func(ctx context.Context) (err error) {
		if shared.http, err = rest.HTTPClientFor(config()); err != nil {
			return err
		}
		shared.Clients = []*http.Client{shared.http}
		return shared.Fleet.Hub.InstallCRDs(ctx, "../../../../charts/federator/crds")
	}
	os.Exit(shared.Main(m))
}

func config() *rest.Config {
	cfg := shared.Fleet.Hub.DirectRESTConfig()
	cfg.WarningHandler = rest.NoWarnings{}
	gv := v1alpha1.SchemeGroupVersion()
	cfg.GroupVersion, cfg.APIPath, cfg.NegotiatedSerializer = &gv, "/apis", scheme.Codecs.WithoutConversion()
	cfg.QPS = -1
	return cfg
}

// process is one that uses the Plans. Its requests pass hooks, whose errors fail them: before
// one is sent, and after it was answered.
type process struct {
	planstore.Store

	mu            sync.Mutex
	before, after func(*http.Request) error
	requests      int
}

func newProcess(t *testing.T) *process {
	t.Helper()
	shared.Start(t)
	p := &process{}
	c, err := rest.RESTClientForConfigAndClient(config(), &http.Client{Transport: p})
	if err != nil {
		t.Fatal(err)
	}
	p.Hub = hubclient.Client{REST: c}
	return p
}

func (p *process) hooks() (before, after func(*http.Request) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	return p.before, p.after
}

// RoundTrip implements http.RoundTripper.
func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	before, after := p.hooks()
	if before != nil {
		if err := before(r); err != nil {
			return nil, err
		}
	}
	answer, err := shared.http.Transport.RoundTrip(r)
	if err == nil && after != nil {
		if err := after(r); err != nil {
			answer.Body.Close()
			return nil, err
		}
	}
	return answer, err
}

var errCut = errors.New("the network is cut")

// endAt returns a context that ends with the process: at a step, which is before a request is
// sent, or after it was answered. Nothing is sent afterwards.
func (p *process) endAt(ctx context.Context, step int) (context.Context, func() bool) {
	ctx, cancel := context.WithCancel(ctx)
	var steps atomic.Int64
	end := func(*http.Request) error {
		if int(steps.Add(1)) >= step {
			cancel()
			return errCut
		}
		return nil
	}
	p.before, p.after = end, end
	return ctx, func() bool { defer cancel(); return int(steps.Load()) >= step }
}

// newPolicy is the name of a policy that no other test has.
func newPolicy() v1alpha1.PolicyName {
	return v1alpha1.PolicyName(fmt.Sprintf("policy-%d", shared.policies.Add(1)))
}

var since = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

func digest(c string) v1alpha1.Digest { return v1alpha1.Digest(strings.Repeat(c, 64)) }

// targetsOf returns n targets, each so long that a part has some 600 of them; note is what is
// shown of them.
func targetsOf(n int, note string) []plans.Target {
	out := make([]plans.Target, n)
	for i := range out {
		out[i] = plans.Target{
			MemberUID: "u", Ref: policy.Ref{Member: "fleet/a", Kind: "ConfigMap", Namespace: strings.Repeat("n", 253), Name: fmt.Sprintf("%s%06d", strings.Repeat("o", 240), i)},
			APIVersion: "v1", UID: fmt.Sprint(i), Verb: v1alpha1.Patch, Remedy: digest("a"), Message: note + strings.Repeat("m", 200),
		}
	}
	return out
}

func planOf(t *testing.T, p v1alpha1.PolicyName, targets []plans.Target) (*v1alpha1.Plan, []*v1alpha1.PlanPart) {
	t.Helper()
	author := v1alpha1.UserName("jo")
	if len(targets) > 0 {
		author += v1alpha1.UserName(targets[0].Message) // in no hash, either
	}
	plan, parts, err := plans.Build(v1alpha1.PlanSpec{
		Policy: p, Purpose: v1alpha1.PlanGeneration, Generation: strings.Repeat("a", 32), Authors: []v1alpha1.UserName{author},
		Digests: v1alpha1.PlanDigests{Package: digest("1"), Parameters: digest("2"), Spec: digest("3")},
	}, targets)
	if err != nil {
		t.Fatal(err)
	}
	plan.Status = v1alpha1.PlanStatus{State: v1alpha1.PlanWaiting, Since: &since, Required: 2}
	return plan, parts
}
