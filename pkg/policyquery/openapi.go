package policyquery

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

var _, _ queryapi.Describer = &Rego{}, Violations{}

// regoParameters are the parameters of Rego.
var regoParameters = []queryapi.Parameter{
	{Name: "query", Description: "The Rego to evaluate over data.fleet, such as count(data.fleet.objects.Pod).", Required: true},
}

// Describe implements queryapi.Describer.
func (*Rego) Describe() queryapi.Operation {
	return queryapi.Operation{
		Description: "Evaluate a Rego query over the objects of the fleet that the caller may list. Each row is one solution of the query.",
		Parameters:  regoParameters, Response: policy.Answer{},
	}
}

// Describe implements queryapi.Describer.
func (Violations) Describe() queryapi.Operation {
	d := queryapi.Operation{
		Description: "List the violations of policies, as far as the caller may read the objects that they were evaluated on; with groupBy, count them by group. " +
			"With watch=true the response is a stream of events, one per line: ADDED, MODIFIED and DELETED contain a Finding; " +
			"BOOKMARK contains the resourceVersion after the preceding events; ERROR contains a Status and is the last event.",
		Response: ViolationList{}, Events: []any{Finding{}, Bookmark{}},
	}
	for _, p := range parameters {
		d.Parameters = append(d.Parameters, p.Parameter)
	}
	return d
}

// parameter is a parameter of Violations, and what sets it.
type parameter struct {
	queryapi.Parameter
	list func(*params) *[]string // of a repeated parameter
	set  func(*params, string) error
}

// Enums of parameters.
var (
	severities = policy.Severities()
	states     = []string{policy.Known.String(), policy.Unknown.String(), policy.Error.String()}
	groups     = slices.Sorted(maps.Keys(groupKeys))
)

// parameters are those of Violations.
var parameters = []parameter{
	repeatedParameter("policy", "Only violations of these policies.", nil, func(a *params) *[]string { return &a.policies }),
	repeatedParameter("package", "Only violations of policies with these Rego packages.", nil, func(a *params) *[]string { return &a.packages }),
	repeatedParameter("severity", "Only violations of policies with these severities.", severities, func(a *params) *[]string { return &a.severities }),
	repeatedParameter("member", "Only violations in these members, <namespace>/<name>.", nil, func(a *params) *[]string { return &a.members }),
	repeatedParameter("namespace", "Only violations in these namespaces.", nil, func(a *params) *[]string { return &a.namespaces }),
	repeatedParameter("kind", "Only violations on these kinds, such as Pod or Deployment.apps.", nil, func(a *params) *[]string { return &a.kinds }),
	repeatedParameter("state", "Only subjects whose verdict is in one of these states.", states, func(a *params) *[]string { return &a.states }),
	repeatedParameter("groupBy", fmt.Sprintf("Count violations by these keys, at most %d, instead of listing them.", maxGroupBy), groups,
		func(a *params) *[]string { return &a.groupBy }),
	singleParameter("exempt", "true: only subjects with exempt violations; false: only those with violations that are not exempt.", "boolean", (*params).setExempt),
	singleParameter("firstSeenSince", "Only subjects with a violation that was first seen at or after this time, RFC 3339, or within a duration such as 24h.", "", (*params).setFirstSeenSince),
	singleParameter("search", fmt.Sprintf("Only subjects with this text in a message, their name, namespace or key, or the policy's name, in upper or lower case: at most %d bytes.", maxSearch), "", (*params).setSearch),
	{queryapi.Parameter{
		Name: "orderBy", Enum: []string{orderPolicy, orderSeverity},
		Description: "policy, the default: by policy and subject; severity: the most severe first, then by policy and subject. A page in the latter order is refused with 410 where policies or their severities have changed since the first page. Not supported with groupBy or watch.",
	}, nil, (*params).setOrderBy},
	singleParameter("limit", fmt.Sprintf("Maximum number of items per page, 1 to %d; the default is %d.", maxLimit, defaultLimit), "integer", (*params).setLimit),
	singleParameter("continue", "The continue value of the previous page.", "", (*params).setContinue),
	singleParameter("watch", "Watch for changes, as a stream of events. Not supported with groupBy or continue.", "boolean", (*params).setWatch),
	singleParameter("resourceVersion", "With watch: send only changes since this resourceVersion, of a list or an event with the same parameters.", "", (*params).setResourceVersion),
	singleParameter("timeoutSeconds", "With watch: end after this time, at most an hour.", "integer", (*params).setTimeout),
}

func repeatedParameter(name, about string, values []string, all func(*params) *[]string) parameter {
	return parameter{queryapi.Parameter{Name: name, Description: about, Repeated: true, Enum: values}, all, nil}
}

func singleParameter(name, about, kind string, one func(*params, string) error) parameter {
	return parameter{queryapi.Parameter{Name: name, Description: about, Type: kind}, nil, one}
}

var errBool = errors.New("is neither true nor false")

func (a *params) setExempt(value string) error {
	if value != "true" && value != "false" {
		return errBool
	}
	a.exempt = value
	return nil
}

// maxSearch bounds what is searched for, in bytes.
const maxSearch = 256

func (a *params) setSearch(value string) error {
	if len(value) > maxSearch {
		return fmt.Errorf("has more than %d bytes", maxSearch)
	}
	a.search = strings.ToLower(value)
	return nil
}

func (a *params) setFirstSeenSince(value string) (err error) {
	_, notATime := time.Parse(time.RFC3339, value)
	a.sinceDuration = notATime != nil
	a.firstSeenSince, err = parseSince(value, time.Now())
	return err
}

func (a *params) setOrderBy(value string) error {
	if value != orderPolicy && value != orderSeverity {
		return fmt.Errorf("%q is not one of %s, %s", value, orderPolicy, orderSeverity)
	}
	a.orderBy = value
	return nil
}

func (a *params) setLimit(value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxLimit {
		return fmt.Errorf("is not a number from 1 to %d", maxLimit)
	}
	a.limit = n
	return nil
}

func (a *params) setContinue(value string) error {
	after, ok := decodeCursor(value)
	if !ok {
		return errors.New("is not a value that this server returned")
	}
	a.after = after
	return nil
}

func (a *params) setWatch(value string) error {
	yes, err := strconv.ParseBool(value)
	if err != nil {
		return errBool
	}
	a.watch = yes
	return nil
}

func (a *params) setResourceVersion(value string) error {
	if a.resourceVersion = value; value == "0" {
		a.resourceVersion = "" // any version
	}
	return nil
}

func (a *params) setTimeout(value string) error {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return errors.New("is not a number of seconds")
	}
	a.timeout = time.Duration(n) * time.Second
	return nil
}
