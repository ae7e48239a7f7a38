# shellcheck shell=bash
# Read by scripts of bash: `--help` prints the comment at the head of a script, and what it does not know is refused
# before it does anything. deploy/usage.py is the same for those of Python.
#
#   source "$(dirname "$0")/usage.sh"
#   takes 0 1 --scratch --etcd -- "$@"     at least 0 and at most 1 words, and these options, which have no value

# Read at once: scripts go to other folders.
usage_text=$(awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0")

# Prints the comment at the head of the script.
usage() { echo "$usage_text"; }

# Ends the script with what is wrong with its arguments.
misused() {
  echo "${0##*/}: $*; see $0 --help" >&2
  exit 2
}

# Ends the script if its arguments ask for help, or are not what it takes. Options come before words.
takes() {
  local least=$1 most=$2 known=' ' words=0
  shift 2
  while [[ $1 != -- ]]; do known+="$1 " && shift; done
  shift
  local word
  for word; do
    case $word in
      -h | --help) usage && exit ;;
      -*)
        [[ $known == *" $word "* ]] || misused "there is no option $word"
        ((words == 0)) || misused "$word has to come first"
        ;;
      *) words=$((words + 1)) ;;
    esac
  done
  ((words >= least)) || misused "$((least - words)) more of its words are missing"
  ((words <= most)) || misused "it takes no more than $most words, not $words"
}
