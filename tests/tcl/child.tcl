# Put behind the suite's own helpers (tests/tcl/run): Redis writes a snapshot in a child process, and
# tests kill that to see what happens if it dies. Here a thread writes it, so it is the snapshot that
# is made to fail.

# The process with the snapshot; the next `kill -9` of it is meant for the snapshot.
proc get_child_pid {idx} {
    set pid [srv $idx pid]
    set ::snapshots_to_kill($pid) $idx
    return $pid
}

rename exec exec_process
proc exec {args} {
    set pid [lindex $args 2]
    if {[lrange $args 0 1] eq {kill -9} && [info exists ::snapshots_to_kill($pid)]} {
        set idx $::snapshots_to_kill($pid)
        unset ::snapshots_to_kill($pid)
        # Its thread may not have come that far.
        set tries 0
        while {[catch {[srv $idx client] debug snapshot-fault} reply]} {
            if {[incr tries] > 100} {error $reply}
            after 10
        }
        return $reply
    }
    exec_process {*}$args
}

# The log says where it stands in the replication stream, in lines that are annotations to others.
rename read_from_aof read_command_from_aof
proc read_from_aof {fp} {
    while 1 {
        set place [tell $fp]
        if {[gets $fp line] == -1 || ![string match {#REPL:*} $line]} {
            seek $fp $place
            return [read_command_from_aof $fp]
        }
    }
}
