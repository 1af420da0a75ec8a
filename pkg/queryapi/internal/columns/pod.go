package columns

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/internal/rows"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
)

// Pods are most of what a fleet has, and their printer decodes each: some 40 µs and 7 KB. podPrinter reads what it uses out of
// the bytes, and follows printPod of k8s.io/kubernetes/pkg/printers/internalversion. A test holds it to the printer.

// podColumns are the columns of a Table of pods that it knows, by cell.
var podColumns = []string{"Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"}

// printsPods reports whether a resource is that of pods, with these columns.
func printsPods(r *catalog.Resource) bool {
	names := make([]string, 0, len(podColumns))
	for _, c := range r.Columns() {
		names = append(names, c.Name)
	}
	return r.Kind == "Pod" && slices.Equal(names, podColumns)
}

// podPrinter has the cells of one pod. Texts are parts of its body, as JSON writes them, and have no escapes.
type podPrinter struct {
	canonjson.Reader
	odd bool // the body has what is left to Kubernetes' own printer

	phase, reason, node, nominated, ip, firstIP []byte
	deleted                                     bool
	containers                                  int
	initContainers                              []initContainer
	initStatuses, statuses                      []containerStatus
	conditions                                  []condition
	gates                                       [][]byte

	status          []byte
	ready, restarts int
	all             int // containers that may be ready
	fulfilled       int // readiness gates
	buffer          []byte
}

type initContainer struct {
	name        []byte
	restartable bool
}

type condition struct{ kind, status, reason []byte }

type containerStatus struct {
	name                            []byte
	restarts                        int
	ready, started                  bool
	running, waiting, terminated    bool
	waitingReason, terminatedReason []byte
	exitCode, signal                int
}

// read reads a pod, and reports whether its cells are known.
func (p *podPrinter) read(body []byte) bool {
	*p = podPrinter{
		Reader: canonjson.NewReader(body), initContainers: p.initContainers[:0], initStatuses: p.initStatuses[:0], statuses: p.statuses[:0],
		conditions: p.conditions[:0], gates: p.gates[:0], buffer: p.buffer[:0],
	}
	p.object(func(key []byte) {
		switch string(key) {
		case "metadata":
			p.object(p.metadata)
		case "spec":
			p.object(p.spec)
		case "status":
			p.object(p.podStatus)
		default:
			p.Skip()
		}
	})
	if p.odd || p.End() != nil {
		return false
	}
	p.print()
	return true
}

// object reads an object, or null; of must read the value of each key.
func (p *podPrinter) object(of func(key []byte)) {
	if p.null() {
		return
	}
	for more := p.Open('{'); more && !p.odd; more = p.Next('}') {
		key, escaped := p.Key()
		if escaped {
			p.Skip()
			continue
		}
		of(key)
	}
}

// list reads a list, or null.
func (p *podPrinter) list(of func()) {
	if p.null() {
		return
	}
	for more := p.Open('['); more && !p.odd; more = p.Next(']') {
		of()
	}
}

// null reads null, and reports whether it was next.
func (p *podPrinter) null() bool {
	if p.Peek() != 'n' {
		return false
	}
	p.Literal("null")
	return true
}

// text reads a string, or null.
func (p *podPrinter) text() []byte {
	if p.null() {
		return nil
	}
	text, escaped := p.Text()
	p.odd = p.odd || escaped
	return text
}

func (p *podPrinter) number() int {
	if p.null() {
		return 0
	}
	n, err := strconv.ParseInt(string(p.Number()), 10, 32)
	p.odd = p.odd || err != nil
	return int(n)
}

func (p *podPrinter) bool() bool {
	switch p.Peek() {
	case 't':
		p.Literal("true")
		return true
	case 'f':
		p.Literal("false")
	default:
		p.odd = p.odd || !p.null()
	}
	return false
}

func (p *podPrinter) metadata(key []byte) {
	if string(key) != "deletionTimestamp" {
		p.Skip()
		return
	}
	if p.null() {
		return
	}
	_, err := time.Parse(time.RFC3339, string(p.text()))
	p.deleted, p.odd = true, p.odd || err != nil
}

func (p *podPrinter) spec(key []byte) {
	switch string(key) {
	case "nodeName":
		p.node = p.text()
	case "containers":
		p.list(func() {
			p.containers++
			p.Skip()
		})
	case "initContainers":
		p.list(func() {
			var c initContainer
			p.object(func(key []byte) {
				switch string(key) {
				case "name":
					c.name = p.text()
				case "restartPolicy":
					c.restartable = string(p.text()) == "Always"
				default:
					p.Skip()
				}
			})
			p.initContainers = append(p.initContainers, c)
		})
	case "readinessGates":
		p.list(func() {
			var kind []byte
			p.object(func(key []byte) {
				if string(key) == "conditionType" {
					kind = p.text()
				} else {
					p.Skip()
				}
			})
			p.gates = append(p.gates, kind)
		})
	default:
		p.Skip()
	}
}

func (p *podPrinter) podStatus(key []byte) {
	switch string(key) {
	case "phase":
		p.phase = p.text()
	case "reason":
		p.reason = p.text()
	case "nominatedNodeName":
		p.nominated = p.text()
	case "podIP":
		p.ip = p.text()
	case "podIPs":
		n := 0
		p.list(func() {
			p.object(func(key []byte) {
				if string(key) == "ip" && n == 0 {
					p.firstIP = p.text()
				} else {
					p.Skip()
				}
			})
			n++
		})
	case "conditions":
		p.list(func() {
			var c condition
			p.object(func(key []byte) {
				switch string(key) {
				case "type":
					c.kind = p.text()
				case "status":
					c.status = p.text()
				case "reason":
					c.reason = p.text()
				default:
					p.Skip()
				}
			})
			p.conditions = append(p.conditions, c)
		})
	case "initContainerStatuses":
		p.list(func() { p.initStatuses = append(p.initStatuses, p.container()) })
	case "containerStatuses":
		p.list(func() { p.statuses = append(p.statuses, p.container()) })
	default:
		p.Skip()
	}
}

func (p *podPrinter) container() (c containerStatus) {
	p.object(func(key []byte) {
		switch string(key) {
		case "name":
			c.name = p.text()
		case "restartCount":
			c.restarts = p.number()
		case "ready":
			c.ready = p.bool()
		case "started":
			c.started = p.bool()
		case "state":
			p.object(func(key []byte) { p.state(key, &c) })
		default:
			p.Skip()
		}
	})
	return c
}

func (p *podPrinter) state(key []byte, c *containerStatus) {
	known := p.Peek() != 'n'
	switch string(key) {
	case "running":
		c.running = known
		p.Skip()
	case "waiting":
		c.waiting = known
		p.object(func(key []byte) {
			if string(key) == "reason" {
				c.waitingReason = p.text()
			} else {
				p.Skip()
			}
		})
	case "terminated":
		c.terminated = known
		p.object(func(key []byte) {
			switch string(key) {
			case "reason":
				c.terminatedReason = p.text()
			case "exitCode":
				c.exitCode = p.number()
			case "signal":
				c.signal = p.number()
			default:
				p.Skip()
			}
		})
	default:
		p.Skip()
	}
}

// print makes the cells, as printPod does.
func (p *podPrinter) print() {
	p.all, p.status = p.containers, p.phase
	if len(p.reason) > 0 {
		p.status = p.reason
	}
	for _, c := range p.conditions {
		if string(c.kind) == "PodScheduled" && string(c.reason) == "SchedulingGated" {
			p.status = c.reason
		}
	}
	for _, c := range p.initContainers {
		if c.restartable {
			p.all++
		}
	}
	restartable := p.printInit()
	if restartable >= 0 {
		p.restarts = restartable
		p.printContainers()
	}
	terminal := string(p.phase) == "Failed" || string(p.phase) == "Succeeded"
	switch {
	case p.deleted && string(p.reason) == "NodeLost":
		p.status = []byte("Unknown")
	case p.deleted && !terminal:
		p.status = []byte("Terminating")
	}
	if len(p.ip) == 0 {
		p.ip = p.firstIP
	}
	for _, gate := range p.gates {
		for _, c := range p.conditions {
			if bytes.Equal(c.kind, gate) {
				if string(c.status) == "True" {
					p.fulfilled++
				}
				break
			}
		}
	}
}

// restartable reports whether an init container goes on beside the others.
func (p *podPrinter) restartable(name []byte) bool {
	for i := len(p.initContainers) - 1; i >= 0; i-- { // of two with a name, the last
		if bytes.Equal(p.initContainers[i].name, name) {
			return p.initContainers[i].restartable
		}
	}
	return false
}

// printInit goes through init containers. It returns the restarts of those that go on beside the others, -1 while the pod is
// being initialized.
func (p *podPrinter) printInit() (restarts int) {
	initializing := false
	for i := range p.initStatuses {
		c := &p.initStatuses[i]
		beside := p.restartable(c.name)
		p.restarts += c.restarts
		if beside {
			restarts += c.restarts
		}
		if c.terminated && c.exitCode == 0 {
			continue
		}
		if beside && c.started {
			if c.ready {
				p.ready++
			}
			continue
		}
		initializing = true
		switch {
		case c.terminated && len(c.terminatedReason) > 0:
			p.setStatus("Init:%s", c.terminatedReason)
		case c.terminated && c.signal != 0:
			p.setStatus("Init:Signal:%d", c.signal)
		case c.terminated:
			p.setStatus("Init:ExitCode:%d", c.exitCode)
		case c.waiting && len(c.waitingReason) > 0 && string(c.waitingReason) != "PodInitializing":
			p.setStatus("Init:%s", c.waitingReason)
		default:
			p.setStatus("Init:%d/%d", i, len(p.initContainers))
		}
		break
	}
	if initializing && !p.initialized() {
		return -1
	}
	return restarts
}

// setStatus sets a status that is in no body. It is rare.
func (p *podPrinter) setStatus(format string, args ...any) {
	p.buffer = fmt.Appendf(p.buffer[:0], format, args...)
	p.status = p.buffer
}

func (p *podPrinter) initialized() bool {
	for _, c := range p.conditions {
		if string(c.kind) == "Initialized" {
			return string(c.status) == "True"
		}
	}
	return false
}

// printContainers goes through the containers, from the last to the first.
func (p *podPrinter) printContainers() {
	running := false
	var failed []byte
	for i := len(p.statuses) - 1; i >= 0; i-- {
		c := &p.statuses[i]
		p.restarts += c.restarts
		switch {
		case c.waiting && len(c.waitingReason) > 0:
			p.status = c.waitingReason
		case c.terminated:
			switch {
			case len(c.terminatedReason) > 0:
				p.status = c.terminatedReason
			case c.signal != 0:
				p.status = fmt.Appendf(nil, "Signal:%d", c.signal)
			default:
				p.status = fmt.Appendf(nil, "ExitCode:%d", c.exitCode)
			}
			if c.exitCode != 0 {
				failed = p.status
			}
		case c.ready && c.running:
			running = true
			p.ready++
		}
	}
	if string(p.status) != "Completed" {
		return
	}
	isReady := slices.ContainsFunc(p.conditions, func(c condition) bool { return string(c.kind) == "Ready" && string(c.status) == "True" })
	switch {
	case running && isReady:
		p.status = []byte("Running")
	case len(failed) > 0:
		p.status = failed
	case running:
		p.status = []byte("NotReady")
	}
}

// append appends a cell of a Table as a cell of its type, and reports whether it is a value of that.
func (p *podPrinter) append(dst []byte, from *source) ([]byte, bool) {
	var text []byte
	switch podColumns[from.cell] {
	case "Ready":
		return p.appendRatio(dst, p.ready, p.all), true
	case "Restarts":
		return strconv.AppendInt(dst, int64(p.restarts), 10), from.kind == rows.Int
	case "Readiness Gates":
		if len(p.gates) == 0 {
			return append(dst, "null"...), true
		}
		return p.appendRatio(dst, p.fulfilled, len(p.gates)), true
	case "Status": // it may be empty
		if string(p.status) == "<none>" {
			return append(dst, "null"...), true
		}
		return append(append(append(dst, '"'), p.status...), '"'), true
	case "IP":
		text = p.ip
	case "Node":
		text = p.node
	case "Nominated Node":
		text = p.nominated
	}
	if len(text) == 0 || string(text) == "<none>" {
		return append(dst, "null"...), true
	}
	return append(append(append(dst, '"'), text...), '"'), true
}

func (p *podPrinter) appendRatio(dst []byte, n, of int) []byte {
	dst = strconv.AppendInt(append(dst, '"'), int64(n), 10)
	dst = strconv.AppendInt(append(dst, '/'), int64(of), 10)
	return append(dst, '"')
}
