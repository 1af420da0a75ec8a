package simulation

// Invariant 5: each write has its Action first; no write is done twice; none is forgotten.
type recordModel struct {
	writes map[string]int    // that changed a member, by Action
	hidden map[string]bool   // Actions whose write nobody can see any more: another client has changed the target since
	last   map[string]string // the Action that has written a target last
}

func newRecordModel() recordModel {
	return recordModel{writes: map[string]int{}, hidden: map[string]bool{}, last: map[string]string{}}
}

// changed is told of each change of a target by another client.
func (m *recordModel) changed(target string) {
	if action := m.last[target]; action != "" {
		m.hidden[action] = true
	}
}

func (m *recordModel) sent(w *world, p *process, x write) {
	if x.action == "" {
		w.fail("5 record", "%s writes to %s without an Action", p.name, x.target())
	} else if w.hub.Peek("actions", "", x.action) == nil {
		w.fail("5 record", "%s writes to %s before its Action %s is recorded", p.name, x.target(), x.action)
	}
}

func (m *recordModel) written(w *world, x write) {
	m.changed(x.target())
	m.last[x.target()] = x.action
	if m.writes[x.action]++; m.writes[x.action] > 1 {
		w.fail("5 record", "%s has been written %d times for one Action, %s", x.target(), m.writes[x.action], x.action)
	}
}

// phase is that of an Action; Writing is that of one without.
func (w *world) phase(action string) string {
	o := w.hub.Peek("actions", "", action)
	if o == nil {
		return ""
	}
	status, _ := o["status"].(map[string]any)
	phase, _ := status["phase"].(string)
	if phase == "" {
		return "Writing"
	}
	return phase
}

// open returns the Actions whose phase is not what became of their write.
func (m *recordModel) open(w *world) (open []string) {
	actions, _ := w.hub.Objects("actions")
	for _, o := range actions {
		name := o["metadata"].(map[string]any)["name"].(string)
		phase := w.phase(name)
		written := m.writes[name] > 0
		if phase == "Writing" || phase == "Pending" || written && phase != "Succeeded" && phase != "RolledBack" && !(phase == "Superseded" && m.hidden[name]) {
			open = append(open, name+" "+phase)
		}
		if !written && phase == "Succeeded" {
			open = append(open, name+" Succeeded, without a write")
		}
	}
	return open
}

func (m *recordModel) quiet(w *world) bool { return len(m.open(w)) == 0 }

func (m *recordModel) unfinished(w *world) {
	if open := m.open(w); len(open) > 0 {
		w.fail("5 record", "long after the last fault, these Actions do not say what became of them: %v", open)
	}
}
