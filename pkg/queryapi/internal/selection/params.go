package selection

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/internal/rows"
	"federator.dev/federator/pkg/aggregate"
)

// Verbs that have parameters.
const (
	Get   = "get"
	List  = "list"
	Watch = "watch"
)

// Params are the parameters of one request.
type Params struct {
	Limit    int64  // 0: none
	Continue string // see TokenCodec.Decode

	// ResourceVersion is "" or a decimal; Revision is its value.
	ResourceVersion      string
	Revision             aggregate.Revision
	ResourceVersionMatch metav1.ResourceVersionMatch

	LabelSelector, FieldSelector string // see Compile

	Watch               bool
	AllowWatchBookmarks bool
	SendInitialEvents   *bool
	Timeout             time.Duration // 0: none was requested

	Pretty        bool
	IncludeObject metav1.IncludeObjectPolicy // "": None, Metadata or Object was not requested
	RequireSynced bool                       // fail unless all selected members are Synced

	// Of rows: see rows.ParseChosen, and whether a Table's columns are left out.
	Columns          string
	NoPrinterColumns bool
}

// parameter parses the value of one parameter.
type parameter struct {
	verbs string // verbs that accept it, separated by commas
	read  func(p *Params, value string) error
}

var parameters = map[string]parameter{
	"limit": {"list", func(p *Params, v string) (err error) {
		p.Limit, err = parseCount(v)
		return err
	}},
	"continue": {"list", func(p *Params, v string) error {
		p.Continue = v
		return nil
	}},
	"resourceVersion": {"get,list,watch", func(p *Params, v string) error {
		revision, err := strconv.ParseUint(v, 10, 64)
		if v != "" && err != nil {
			return errNotNumber
		}
		p.ResourceVersion, p.Revision = v, aggregate.Revision(revision)
		return nil
	}},
	"resourceVersionMatch": {"list,watch", func(p *Params, v string) error {
		p.ResourceVersionMatch = metav1.ResourceVersionMatch(v)
		return nil
	}},
	"labelSelector": {"list,watch", func(p *Params, v string) error {
		p.LabelSelector = v
		return nil
	}},
	"fieldSelector": {"list,watch", func(p *Params, v string) error {
		p.FieldSelector = v
		return nil
	}},
	"watch": {"list,watch", func(p *Params, v string) (err error) {
		p.Watch, err = ParseBool(v)
		return err
	}},
	"allowWatchBookmarks": {"list,watch", func(p *Params, v string) (err error) {
		p.AllowWatchBookmarks, err = ParseBool(v)
		return err
	}},
	"sendInitialEvents": {"list,watch", func(p *Params, v string) error {
		b, err := ParseBool(v)
		p.SendInitialEvents = &b
		return err
	}},
	"timeoutSeconds": {"list,watch", func(p *Params, v string) error {
		seconds, err := parseCount(v)
		if err != nil {
			return err
		}
		return p.setTimeout(float64(seconds) * float64(time.Second))
	}},
	// Clients send their own timeout: client-go's "32s", kubectl's --request-timeout.
	"timeout": {"get,list,watch", func(p *Params, v string) error {
		if v == "" {
			return nil
		}
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 {
			return fmt.Errorf(`must be a duration such as "30s"`)
		}
		return p.setTimeout(float64(d))
	}},
	"pretty": {"get,list,watch", func(p *Params, v string) (err error) {
		p.Pretty, err = ParseBool(v)
		return err
	}},
	"includeObject": {"get,list,watch", func(p *Params, v string) error {
		switch policy := metav1.IncludeObjectPolicy(v); policy {
		case "", metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
			p.IncludeObject = policy
			return nil
		}
		return fmt.Errorf("must be None, Metadata or Object")
	}},
	rows.ColumnsParameter: {"list", func(p *Params, v string) error {
		p.Columns = v
		return nil
	}},
	rows.PrinterParameter: {"list", func(p *Params, v string) error {
		b, err := ParseBool(v)
		p.NoPrinterColumns = !b
		return err
	}},
	"require": {"get,list,watch", func(p *Params, v string) error {
		if v != "synced" {
			return fmt.Errorf("must be synced")
		}
		p.RequireSynced = true
		return nil
	}},
}

var errNotNumber = fmt.Errorf("must be a non-negative decimal number")

// parseCount parses a non-negative number; "" is 0.
func parseCount(v string) (int64, error) {
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(v, 10, 63)
	if err != nil {
		return 0, errNotNumber
	}
	return int64(n), nil
}

// ParseBool parses true and false; a parameter without a value is true, as in an API server.
func ParseBool(v string) (bool, error) {
	switch strings.ToLower(v) {
	case "", "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	}
	return false, fmt.Errorf("must be true or false")
}

// setTimeout sets a timeout in nanoseconds, unless a shorter one is set; 0 is none.
func (p *Params) setTimeout(ns float64) error {
	if ns > math.MaxInt64/2 {
		return fmt.Errorf("is longer than 100 years")
	}
	if d := time.Duration(ns); d > 0 && (p.Timeout == 0 || d < p.Timeout) {
		p.Timeout = d
	}
	return nil
}

// maxValue bounds one parameter's value in bytes.
const maxValue = 64 << 10

// Parse parses the parameters of a get, list or watch. Errors are *apierrors.StatusError:
// 400 for a parameter that the verb does not have, that is repeated or whose value is
// invalid, 422 for those that may not be combined, as from an API server.
func Parse(query url.Values, verb string) (*Params, error) {
	p := &Params{}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		known, ok := parameters[name]
		switch values := query[name]; {
		case !ok:
			return nil, NewBadParameter(name, "is not supported")
		case !slices.Contains(strings.Split(known.verbs, ","), verb):
			return nil, NewBadParameter(name, fmt.Sprintf("is not supported for %s", verb))
		case len(values) != 1:
			return nil, NewBadParameter(name, fmt.Sprintf("is given %d times", len(values)))
		case len(values[0]) > maxValue:
			return nil, NewBadParameter(name, fmt.Sprintf("is longer than %d bytes", maxValue))
		default:
			if err := known.read(p, values[0]); err != nil {
				return nil, NewBadParameter(name, fmt.Sprintf("is %.64q, %v", values[0], err))
			}
		}
	}
	if err := p.validate(verb); err != nil {
		return p, err
	}
	if verb == List && p.Limit > 0 && p.Revision != 0 && p.ResourceVersionMatch == "" {
		p.ResourceVersionMatch = metav1.ResourceVersionMatchExact // as in API servers, for a page of a revision
	}
	return p, nil
}

// NewBadParameter is the 400 for a parameter that cannot be used; it names it.
func NewBadParameter(name, problem string) error {
	if len(name) > 64 {
		name = name[:64]
	}
	return apierrors.NewBadRequest(fmt.Sprintf("parameter %q %s", name, problem))
}

// validate checks the parameters by the rules of API servers.
func (p *Params) validate(verb string) error {
	if p.Watch != (verb == Watch) && verb != Get {
		return NewBadParameter("watch", fmt.Sprintf("is not supported with %s", verb))
	}
	errs := validation.ValidateListOptions(&internalversion.ListOptions{
		Watch: p.Watch, ResourceVersion: p.ResourceVersion, ResourceVersionMatch: p.ResourceVersionMatch,
		Continue: p.Continue, SendInitialEvents: p.SendInitialEvents,
	}, true)
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if p.Continue != "" && p.ResourceVersion != "" && p.ResourceVersion != "0" {
		return apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	return nil
}
