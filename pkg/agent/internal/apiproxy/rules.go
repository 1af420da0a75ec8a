package apiproxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A path that is longer, or has longer segments, names nothing that an API server has.
const (
	maxPath = 1 << 10
	maxURI  = 16 << 10 // with the query
)

// check returns why a request is refused, "" where federator needs such. What it lets through is what the agent's
// ServiceAccount then may or may not do.
func check(r *http.Request) string {
	switch {
	case len(r.URL.Path) > maxPath || len(r.RequestURI) > maxURI:
		return "the path is too long"
	case r.URL.RawPath != "":
		return "the path is written in another way than federator does"
	case r.Header.Get("Upgrade") != "" || r.Header.Get("Connection") != "" || r.Method == http.MethodConnect:
		return "connections are not upgraded: exec, attach and port-forward have no way through an agent"
	}
	for name := range r.Header {
		if strings.HasPrefix(strings.ToLower(name), "impersonate-") {
			return "nobody is impersonated through an agent: what it does is what its ServiceAccount may"
		}
	}
	parts, why := segments(r.URL.Path)
	if why != "" {
		return why
	}
	return checkPath(r.Method, parts)
}

// segments splits a path.
func segments(path string) (parts []string, why string) {
	parts = strings.Split(strings.TrimPrefix(path, "/"), "/")
	for _, p := range parts {
		if p == "" || p == "." || p == ".." || strings.ContainsAny(p, "%\\\x00") {
			return nil, "the path is no path of an API server"
		}
	}
	return parts, ""
}

func checkPath(method string, parts []string) string {
	var resource []string // what follows the version
	group := ""
	switch {
	case parts[0] == "api" && len(parts) > 2:
		resource = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		group, resource = parts[1], parts[3:]
	case parts[0] == "version" && len(parts) == 1, parts[0] == "api" || parts[0] == "apis": // discovery
		if method != http.MethodGet {
			return "it may be read only"
		}
		return ""
	default:
		return fmt.Sprintf("/%.40s is nothing that federator reads", parts[0])
	}
	return checkResource(method, group, resource)
}

// Groups whose resources answer a question or hand something out, instead of being objects.
const (
	authenticationGroup = "authentication.k8s.io"
	authorizationGroup  = "authorization.k8s.io"
	reviews             = "subjectaccessreviews"
)

// notObjects are words in the place of a resource that are none that federator needs: the ways that old API servers
// had for watches and proxies, and the resource that schedules pods.
var notObjects = []string{"watch", "proxy", "redirect", "bindings"}

// ofNamespace are the subresources of Namespaces, which look like resources in one.
var ofNamespace = []string{"status", "finalize"}

// checkResource decides on the part of a path that follows the version: a resource, and what of it.
func checkResource(method, group string, parts []string) string {
	if parts[0] == "namespaces" && len(parts) > 2 {
		if slices.Contains(ofNamespace, parts[2]) && len(parts) == 3 {
			return subresource(parts[2])
		}
		parts = parts[2:]
	}
	resource := parts[0]
	switch {
	case slices.Contains(notObjects, resource):
		return fmt.Sprintf("%s is nothing that federator reads or writes", resource)
	case len(parts) > 2:
		return subresource(parts[2])
	case group == authenticationGroup, group == authorizationGroup && (resource != reviews || method != http.MethodPost || len(parts) > 1):
		return fmt.Sprintf("of group %s, only %s are created", group, reviews)
	}
	object := len(parts) == 2
	switch method {
	case http.MethodGet: // of an object, or a list or watch
		return ""
	case http.MethodPost:
		if !object {
			return ""
		}
	case http.MethodPatch, http.MethodDelete:
		if object {
			return ""
		}
		return "objects are changed and deleted one by one"
	}
	return fmt.Sprintf("method %.10s is nothing that federator sends there", method)
}

func subresource(name string) string {
	return fmt.Sprintf("subresource %.40q is nothing that federator reads or writes", name)
}

// passed are the headers of requests that reach the API server. Credentials are not among them: those are the agent's. Audit-Id and Traceparent
// only name a request in logs and traces.
var passed = []string{"Accept", "Audit-Id", "Content-Type", "Content-Length", "If-None-Match", "Traceparent", "User-Agent"}

// What a request waits for where the API server is asked for much: the least first.
const (
	weightNow    = iota // what is short, or corrects something
	weightRights        // what decides on security
	weightObject        // anything else
	weightEvent         // Events, which come without end
)

// weight decides which of the requests that wait is the next.
func weight(r *http.Request) int {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if r.Method != http.MethodGet || parts[0] != "api" && parts[0] != "apis" {
		return weightNow
	}
	group, rest := "", parts[1:]
	if parts[0] == "apis" && len(parts) > 1 {
		group, rest = parts[1], parts[2:]
	}
	if len(rest) > 3 && rest[1] == "namespaces" {
		rest = rest[2:]
	}
	switch {
	case len(rest) < 2: // discovery
		return weightNow
	case rest[1] == "events":
		return weightEvent
	case strings.HasSuffix(group, "rbac.authorization.k8s.io"), group == "admissionregistration.k8s.io", group == "networking.k8s.io", rest[1] == "secrets", rest[1] == "serviceaccounts":
		return weightRights
	}
	return weightObject
}
