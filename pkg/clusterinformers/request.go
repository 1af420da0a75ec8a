package clusterinformers

import (
	"context"
	"io"
	"mime"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

// watchResponse is one HTTP response that a stream reads.
type watchResponse struct {
	client    *memberclient.Client
	body      io.ReadCloser
	encoding  decode.Encoding // of the body
	requested decode.Encoding // the requested encoding
	done      func()
}

func (c *watchResponse) close() {
	c.done()
	_ = c.body.Close() //nolint:errcheck // there is nothing to do about it
}

// watchSlack is how much longer than requested a watch may last before it is
// taken for dead.
const watchSlack = 30 * time.Second

func (s *stream) request(ctx context.Context, a *memberclient.Client) (*watchResponse, error) {
	opts := s.opts
	opts.ResourceVersion = s.rv
	if !s.initial {
		opts.SendInitialEvents, opts.ResourceVersionMatch = nil, ""
	}
	opts.Watch = true
	limit := watchSlack
	if opts.TimeoutSeconds != nil {
		limit += time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	over := a.Track(cancel)
	asked := decode.Encoding(s.listWatch.informer.encoding.Load())
	body, encoding, err := s.listWatch.send(ctx, a, &opts)
	if err != nil {
		over()
		return nil, err
	}
	return &watchResponse{client: a, body: body, encoding: encoding, requested: asked, done: over}, nil
}

// send sends a list or watch request, and returns what the answer is encoded in. Who
// answers a request for protobuf in JSON gets requests for JSON from then on.
func (p *listWatch) send(ctx context.Context, a *memberclient.Client, opts *metav1.ListOptions) (io.ReadCloser, decode.Encoding, error) {
	i := p.informer
	client, err := a.REST(i.res.GVR.GroupVersion())
	if err != nil {
		return nil, decode.JSON, err
	}
	opts.LabelSelector, opts.FieldSelector = i.rule.Labels, i.rule.Fields
	accept, asked := runtime.ContentTypeJSON, decode.Encoding(i.encoding.Load())
	if asked == decode.Protobuf {
		accept = runtime.ContentTypeProtobuf
	}
	req := client.Get().Resource(i.res.GVR.Resource).SpecificallyVersionedParams(opts, scheme.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		SetHeader("Accept", accept).MaxRetries(0)
	if p.namespace != "" {
		req = req.Namespace(p.namespace)
	}
	contentType := ""
	body, err := req.Stream(memberclient.WithStream(ctx, &contentType)) // only a 200 is no error
	if err != nil {
		return nil, asked, memberclient.WrapRequest(req.URL().Path, err)
	}
	if media, _, err := mime.ParseMediaType(contentType); err == nil && media == runtime.ContentTypeJSON && asked == decode.Protobuf {
		i.switchToJSON("the member answers requests for protobuf in JSON")
		asked = decode.JSON
	}
	return body, asked, nil
}
