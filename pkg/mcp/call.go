package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// tool is one that is served.
type tool struct {
	name string
	add  func(*Server)
}

// newTool returns a tool that is answered by ask.
func newTool[In, Out any](name, title, description string, ask func(context.Context, asker, *In) (*Out, bool, error)) tool {
	return tool{name, func(s *Server) {
		no, yes := false, true
		out, err := jsonschema.For[Out](nil)
		if err != nil {
			panic("mcp: " + name + ": " + err.Error()) // it is of a type of this package
		}
		t := &sdk.Tool{
			Name: name, Title: title, Description: description + untrustedNote, OutputSchema: out,
			Annotations: &sdk.ToolAnnotations{Title: title, ReadOnlyHint: true, DestructiveHint: &no, IdempotentHint: true, OpenWorldHint: &yes},
		}
		// Out is not given to the SDK: it would decode and encode the answer again, and numbers would lose digits.
		sdk.AddTool(s.server, t, func(ctx context.Context, _ *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
			return call(ctx, s, name, &in, ask), nil, nil
		})
	}}
}

// call answers one call.
func call[In, Out any](ctx context.Context, s *Server, name string, in *In, ask func(context.Context, asker, *In) (*Out, bool, error)) *sdk.CallToolResult {
	out, cut, err := answer(ctx, s, name, in, ask)
	var text []byte
	if err == nil {
		text, err = json.Marshal(out)
	}
	if err == nil && len(text) > maxAnswer {
		err = fmt.Errorf("the answer has %d bytes", len(text)) // it has been fitted
	}
	if err != nil {
		setResult(ctx, resultOf(err))
		return s.failure(name, err)
	}
	setResult(ctx, resultOK)
	if cut {
		setResult(ctx, resultCut)
	}
	return &sdk.CallToolResult{StructuredContent: json.RawMessage(text), Content: []sdk.Content{&sdk.TextContent{Text: string(text)}}}
}

func answer[In, Out any](ctx context.Context, s *Server, name string, in *In, ask func(context.Context, asker, *In) (*Out, bool, error)) (out *Out, cut bool, err error) {
	c, ok := ctx.Value(callerKey{}).(*caller)
	if !ok {
		return nil, false, errors.New("a call without a caller")
	}
	ctx, end, err := c.begin(ctx, s.options.Timeout)
	if err != nil {
		return nil, false, err
	}
	defer end()
	defer func() {
		if cause := recover(); cause != nil { // of a goroutine of the SDK, where nobody else recovers it
			s.options.Logger.Error("mcp: panic", "tool", name, "cause", cause, "stack", string(debug.Stack()))
			err = errInternal
		}
	}()
	return ask(ctx, asker{c.api}, in)
}

var errInternal = errors.New("an internal error: see the server's log")

// failed is the answer of a call that failed.
type failed struct {
	Error struct {
		Code   int    `json:"code,omitempty"`   // as of HTTP
		Reason string `json:"reason,omitempty"` // as of the Kubernetes API
	} `json:"error"`
	Untrusted struct {
		Message string `json:"message"` // it may cite objects
	} `json:"untrusted"`
}

func (s *Server) failure(name string, err error) *sdk.CallToolResult {
	var f failed
	status, invalid := apierrors.APIStatus(nil), (*argumentError)(nil)
	switch {
	case errors.As(err, &status):
		f.Error.Code, f.Error.Reason = int(status.Status().Code), string(status.Status().Reason)
	case errors.As(err, &invalid):
		f.Error.Code, f.Error.Reason = http.StatusBadRequest, "BadRequest"
	case errors.Is(err, context.DeadlineExceeded):
		f.Error.Code, f.Error.Reason, err = http.StatusGatewayTimeout, "Timeout", errors.New("the call takes too long: ask for less")
	case errors.Is(err, context.Canceled), errors.Is(err, errEnded):
		f.Error.Code, f.Error.Reason = statusClientClosed, "Canceled" // nobody reads it
	default:
		f.Error.Code, f.Error.Reason = http.StatusInternalServerError, "InternalError"
		s.options.Logger.Warn("mcp: a call failed", "tool", name, "error", err)
	}
	f.Untrusted.Message = plain(err.Error(), maxMessage)
	text, err := json.Marshal(f)
	if err != nil {
		panic("mcp: " + err.Error()) // it has texts only
	}
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: string(text)}}}
}

// refused returns what the SDK says of a call that it has refused, as failure does: it cites arguments, which may be copies of what objects say.
func (s *Server) refused(name string, answer sdk.Result, err error) (sdk.Result, error) {
	if protocol := (*jsonrpc.Error)(nil); errors.As(err, &protocol) {
		return nil, &jsonrpc.Error{Code: protocol.Code, Message: plain(protocol.Message, maxMessage)}
	}
	r, ok := answer.(*sdk.CallToolResult)
	if err != nil || !ok || !r.IsError || len(r.Content) != 1 {
		return answer, err
	}
	text, ok := r.Content[0].(*sdk.TextContent)
	if !ok {
		return answer, err
	}
	return s.failure(name, &argumentError{"", "are refused: " + strings.TrimPrefix(text.Text, `validating "arguments": `)}), nil
}

// statusClientClosed is what servers log for clients that have left.
const statusClientClosed = 499

// argumentError says what is wrong with an argument; without a name, with all of them.
type argumentError struct{ name, problem string }

func (e *argumentError) Error() string {
	if e.name == "" {
		return "the arguments " + e.problem
	}
	return "argument " + e.name + " " + e.problem
}

func badArgument(name, format string, args ...any) error {
	return &argumentError{name, fmt.Sprintf(format, args...)}
}

// asker asks the query API, as the caller of one call. Paths are those of this package: arguments are in the query, and what
// of them is in a path has been checked, so that no argument changes what is asked, nor whom.
type asker struct{ api API }

const (
	asJSON  = "application/json"
	asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asMeta  = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// paths are those that are asked.
var paths = regexp.MustCompile(`^(/query/v1/[a-z]+(/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?|/fleet/apis?|/fleet/(api|apis/[a-z0-9]([-a-z0-9.]*[a-z0-9])?)/v[a-z0-9]+(/namespaces/[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?)$`)

// get asks for a path, and decodes the answer.
func (a asker) get(ctx context.Context, path string, query url.Values, accept string, into any) error {
	if !paths.MatchString(path) || strings.Contains(path, "..") {
		return &argumentError{"", "do not name what is served"}
	}
	body, err := a.api.Get(ctx, path, query, accept)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: decoding the response: %w", path, err)
	}
	return nil
}

// members are names of members.
var memberName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// inMember adds to a label selector that objects are of a member; "" is any.
func inMember(selector, member string) (string, error) {
	if member == "" {
		return selector, nil
	}
	if !memberName.MatchString(member) {
		return "", badArgument("member", "is not of the form <namespace>/<name>")
	}
	of := "federator.dev/member=" + strings.Replace(member, "/", ".", 1)
	if selector == "" {
		return of, nil
	}
	return selector + "," + of, nil
}

// values collects parameters, without those that are not set.
type values url.Values

func (v values) set(name, value string) values {
	if value != "" {
		v[name] = []string{value}
	}
	return v
}

func (v values) setAll(name string, all []string) values {
	if len(all) > 0 {
		v[name] = all
	}
	return v
}

func (v values) setInt(name string, n int) values {
	if n != 0 {
		v[name] = []string{strconv.Itoa(n)}
	}
	return v
}

// with returns a copy with another value, that of one parameter is replaced by.
func (v values) with(name, value string) url.Values {
	out := url.Values{}
	for n, all := range v {
		out[n] = all
	}
	out[name] = []string{value}
	return out
}

// without returns a copy without some parameters.
func (v values) without(names ...string) values {
	out := values{}
	for n, all := range v {
		out[n] = all
	}
	for _, n := range names {
		delete(out, n)
	}
	return out
}
