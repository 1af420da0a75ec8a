package config

import (
	"maps"
	"math"
	"slices"
	"time"

	"federator.dev/federator/pkg/tracing"
)

// Traces says where traces go, and of what there are any.
type Traces struct {
	Endpoint    string        `yaml:"endpoint" doc:"Host and port of a receiver of OTLP over gRPC, such as collector.monitoring:4317. Empty: nothing is traced."`
	Sampling    float64       `yaml:"sampling" doc:"Share of the changes to trace that neither lead to an Action nor are slow, and of the queries, from 0 to 1."`
	Slow        time.Duration `yaml:"slow" doc:"How long a change may take from when it is read until its verdicts are there before it is traced for that, at most ten a second. 0: none is."`
	CAFile      string        `yaml:"caFile" doc:"Certificates (PEM) that the receiver is verified with, read at startup. Empty: the system's."`
	HeadersFile string        `yaml:"headersFile" doc:"File of headers of each request, such as a token: a line \"name: value\" for each. It is read for each request, as what it has may rotate."`
	Insecure    bool          `yaml:"insecure" doc:"Send traces unencrypted, to a receiver that is not verified."`
}

func defaultTraces() Traces { return Traces{Sampling: 0.001, Slow: time.Second} }

// Receiver returns where traces are sent.
func (t *Traces) Receiver() tracing.Receiver {
	return tracing.Receiver{Endpoint: t.Endpoint, CAFile: t.CAFile, Insecure: t.Insecure, HeadersFile: t.HeadersFile}
}

func (c *Config) validateTraces(p *problems) {
	t := &c.Traces
	if math.IsNaN(t.Sampling) || t.Sampling < 0 || t.Sampling > 1 {
		p.add("traces.sampling", "is %g, must be between 0 and 1", t.Sampling)
	}
	if t.Slow < 0 {
		p.add("traces.slow", "is %s, must not be negative", t.Slow)
	}
	if t.Endpoint == "" {
		return
	}
	r := t.Receiver()
	errs := r.Validate()
	for _, field := range slices.Sorted(maps.Keys(errs)) {
		p.add("traces."+field, "%v", errs[field])
	}
}
