package queryapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	applyconfiguration "k8s.io/client-go/applyconfigurations/flowcontrol/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	flowcontrolclient "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
)

// fairness shares the server among callers by the hub's FlowSchemas and
// PriorityLevelConfigurations.
type fairness struct {
	client      kubernetes.Interface
	log         *slog.Logger
	maxInFlight int           // requests at once
	timeout     time.Duration // of a request

	filters []*fairFilter // set by filter, before run
}

// fairFilter is a filter by priority and fairness.
type fairFilter struct {
	next, plain http.Handler
	active      atomic.Pointer[http.Handler] // before next; nil while the configuration is not known
}

// ServeHTTP implements http.Handler.
func (f *fairFilter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if fair := f.active.Load(); fair != nil {
		(*fair).ServeHTTP(w, r)
		return
	}
	f.plain.ServeHTTP(w, r)
}

// run applies the hub's configuration until ctx ends. Where federator may not
// read it, only their number remains limited.
func (f *fairness) run(ctx context.Context) {
	err := wait.ExponentialBackoffWithContext(ctx, wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: .2, Steps: 1 << 30, Cap: 30 * time.Second}, f.mayReadConfig)
	if err != nil {
		if ctx.Err() == nil {
			f.log.Warn("query API: API priority and fairness is off, only query.maxInFlight limits requests: cannot read the hub's configuration", "error", err)
		}
		return
	}
	factory := informers.NewSharedInformerFactory(f.client, 0)
	control := utilflowcontrol.New(factory, readOnly{f.client.FlowcontrolV1()}, f.maxInFlight)
	// Responses come from memory, and their cost follows their size, which is not
	// known in advance: each takes one seat.
	one := flowcontrolrequest.WorkEstimatorFunc(func(*http.Request, string, string) flowcontrolrequest.WorkEstimate {
		return flowcontrolrequest.WorkEstimate{InitialSeats: 1}
	})
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	var controller sync.WaitGroup
	defer controller.Wait()
	controller.Go(func() {
		if err := control.Run(ctx.Done()); err != nil && ctx.Err() == nil {
			f.log.Error("query API: API priority and fairness failed", "error", err)
		}
	})
	factory.WaitForCacheSync(ctx.Done())
	for _, filter := range f.filters {
		fair := genericfilters.WithPriorityAndFairness(filter.next, longRunning, control, one.EstimateWork, f.timeout/4)
		filter.active.Store(&fair)
		defer filter.active.Store(nil)
	}
	<-ctx.Done()
}

// mayReadConfig reports whether federator may read the hub's configuration; other errors
// are retried.
func (f *fairness) mayReadConfig(ctx context.Context) (bool, error) {
	one := metav1.ListOptions{Limit: 1}
	_, err := f.client.FlowcontrolV1().FlowSchemas().List(ctx, one)
	if err == nil {
		_, err = f.client.FlowcontrolV1().PriorityLevelConfigurations().List(ctx, one)
	}
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return false, err
	}
	return err == nil, nil
}

// filter admits requests by priority and fairness while it runs, else by plain.
func (f *fairness) filter(next, plain http.Handler) http.Handler {
	filter := &fairFilter{next: next, plain: plain}
	f.filters = append(f.filters, filter)
	return filter
}

// readOnly keeps the statuses of FlowSchemas as the hub's own servers write
// them: federator reads configuration and writes none.
type readOnly struct {
	flowcontrolclient.FlowcontrolV1Interface
}

func (c readOnly) FlowSchemas() flowcontrolclient.FlowSchemaInterface {
	return readOnlySchemas{c.FlowcontrolV1Interface.FlowSchemas()}
}

type readOnlySchemas struct {
	flowcontrolclient.FlowSchemaInterface
}

func (readOnlySchemas) ApplyStatus(context.Context, *applyconfiguration.FlowSchemaApplyConfiguration, metav1.ApplyOptions) (*flowcontrolv1.FlowSchema, error) {
	return &flowcontrolv1.FlowSchema{}, nil
}

// callerShares divides slots among callers: a caller gets another one while it holds fewer
// than are free. A single caller gets half of them, a second one half of the rest, and
// there is always one for a caller that has none yet.
type callerShares struct {
	single bool // there is only one caller

	mu   sync.Mutex
	free int
	held map[string]int // by the caller's name
}

func newCallerShares(limit int, single bool) *callerShares {
	return &callerShares{single: single, free: limit, held: map[string]int{}}
}

// acquire reports whether the caller gets a slot, and how many it held before.
func (s *callerShares) acquire(name string) (ok bool, holds int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	holds = s.held[name]
	if s.free == 0 || !s.single && holds > 0 && holds >= s.free {
		return false, holds
	}
	s.free--
	s.held[name] = holds + 1
	return true, holds
}

func (s *callerShares) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.held[name]--; s.held[name] == 0 {
		delete(s.held, name)
	}
}

// withShare bounds the requests for which pick is true, in all and per caller.
func (s *Server) withShare(next http.Handler, slots *callerShares, pick func(*http.Request) bool, what string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !pick(r) {
			next.ServeHTTP(w, r)
			return
		}
		name := s.callerOf(r.Context()).user.GetName()
		ok, holds := slots.acquire(name)
		if !ok {
			s.metrics.refused.WithLabelValues(what).Inc()
			writeStatus(w, apierrors.NewTooManyRequests(fmt.Sprintf("too many concurrent %s (%d of them are yours), please try again later", what, holds), 1).Status())
			return
		}
		defer slots.release(name)
		next.ServeHTTP(w, r)
	})
}
