package mcp

import (
	"context"
	"errors"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Results of calls.
const (
	resultOK      = "ok"
	resultCut     = "cut"     // not all rows fit
	resultInvalid = "invalid" // what is asked for is not understood, or does not exist
	resultDenied  = "denied"
	resultLimited = "limited" // too many requests
	resultError   = "error"
)

// metrics of the calls. Labels are names of tools that there are.
type metrics struct{ calls *prometheus.CounterVec }

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{calls: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "federator", Name: "mcp_calls_total", Help: "Calls of the tools of the Model Context Protocol, by result: ok, cut (not all rows fit the answer), invalid, denied, limited or error.",
	}, []string{"tool", "result"})}
	if r == nil {
		return m, nil
	}
	return m, r.Register(m.calls)
}

// resultKey is where a call says how it ended.
type resultKey struct{}

// setResult says how a call ended.
func setResult(ctx context.Context, result string) {
	if at, ok := ctx.Value(resultKey{}).(*string); ok {
		*at = result
	}
}

// count counts calls, also those that do not reach their tool as their arguments are invalid. These are answered as tools answer.
func (s *Server) count(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
		call, ok := r.(*sdk.CallToolRequest)
		if !ok {
			return next(ctx, method, r)
		}
		name, result := "other", ""
		if call.Params != nil && toolNames[call.Params.Name] {
			name = call.Params.Name
		}
		answer, err := next(context.WithValue(ctx, resultKey{}, &result), method, r)
		if result == "" {
			result = resultInvalid
			answer, err = s.refused(name, answer, err)
		}
		s.metrics.calls.WithLabelValues(name, result).Inc()
		return answer, err
	}
}

// resultOf is the result of a call that failed.
func resultOf(err error) string {
	if invalid := (*argumentError)(nil); errors.As(err, &invalid) {
		return resultInvalid
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return resultError
	}
	switch code := status.Status().Code; {
	case code == http.StatusForbidden || code == http.StatusUnauthorized:
		return resultDenied
	case code == http.StatusTooManyRequests:
		return resultLimited
	case code >= http.StatusInternalServerError:
		return resultError
	}
	return resultInvalid
}
