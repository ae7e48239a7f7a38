# Put behind the suite's own framework for sentinels (tests/tcl/sentinel): leaves out the tests of skip.txt.

set ::skipped_tests {}
set list [open ../../skip.txt]
foreach line [split [read $list] "\n"] {
    lappend ::skipped_tests [string trim [lindex [split $line |] 0]]
}
close $list

rename test run_test
proc test {name code} {
    if {$name in $::skipped_tests} {
        puts "$name: SKIPPED"
        return
    }
    # The unit before may have left an instance that loads slowly on purpose.
    if {[string match "(init) Create a master-slaves cluster*" $name]} {
        foreach_redis_id id {
            wait_for_condition 1000 50 {
                [RI $id loading] eq 0
            } else {
                fail "instance $id does not end to load"
            }
        }
    }
    # A test that fails makes its caller go on with the next unit.
    set status [catch {uplevel 1 [list run_test $name $code]} result]
    return -code $status $result
}
