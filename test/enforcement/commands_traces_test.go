package enforcement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/otlp"
)

// traceCommands are those of traces.
var traceCommands = map[string]command{
	// traced starts a receiver of traces, for processes that start from now on. SAMPLING is as in the configuration.
	"traced": {"SAMPLING", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		r, stop, err := otlp.Start(ctx, nil)
		if err != nil {
			return err
		}
		s.closers = append(s.closers, stop)
		s.receiver, s.traces = r, fmt.Sprintf("traces: {endpoint: %q, insecure: true, sampling: %s}\n", r.Endpoint, args[0])
		return nil
	}},
}

// traceViews are those of traces.
var traceViews = map[string]view{
	// chain shows what each Action of a FleetPolicy on NAME is part of, a line each: its target, the spans of its trace, what
	// the member's audit log has of its audit ID, and the spans of the trace of its echo.
	"chain": {"NAME POLICY", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) (string, error) {
		if s.receiver == nil {
			return "", errors.New("nothing is traced")
		}
		c, err := s.cluster(ctx, args[0])
		if err != nil {
			return "", err
		}
		events, err := c.Audit()
		if err != nil {
			return "", err
		}
		var list v1alpha1.ActionList
		if err := s.read(ctx, "hub", &list, "/apis/federator.dev/v1alpha1", v1alpha1.Actions); err != nil {
			return "", err
		}
		var out strings.Builder
		for _, a := range list.Items {
			if a.Spec.Binding == args[1] && a.Spec.Target.Member == "fleet/"+args[0] {
				fmt.Fprintf(&out, "%s: %s\n", a.Spec.Target.Name, s.chain(&a.Spec, events))
			}
		}
		return out.String(), nil
	}},
}

func (s *story) chain(a *v1alpha1.ActionSpec, events []kube.AuditEvent) string {
	spans := s.receiver.Trace(string(a.TraceID))
	text := names(spans)
	for _, e := range events {
		if e.AuditID == a.AuditID {
			text += fmt.Sprintf("; %s %s/%s %d", e.Verb, e.ObjectRef.Namespace, e.ObjectRef.Name, e.ResponseStatus.Code)
		}
	}
	for _, span := range spans {
		if span.Name == "correction" && span.Attributes["federator.audit_id"] != a.AuditID {
			text += "; the correction has another audit ID: " + span.Attributes["federator.audit_id"]
		}
		if span.Name == "echo" {
			text += "; " + names(s.receiver.Trace(span.Links[0]))
		}
	}
	return text
}

// names returns the names of spans in order.
func names(spans []otlp.Span) string {
	var all []string
	for _, s := range spans {
		all = append(all, s.Name)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
