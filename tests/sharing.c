/* A tool for valgrind: which cache lines move between the caches of threads, and where in the program.
 *
 * Each thread is taken for a core with a cache of its own without end. A line is held by the caches that have
 * loaded it since it was last stored to, and by the one that stored. What costs a core time is counted, with the
 * call stack of the access:
 *
 *   fetch        a load of a line that another core has stored to since
 *   take         a store to a line, or an atomic operation on it, while another core holds it
 *
 * Valgrind runs one thread at a time, so who meets whom follows from the driver alone: it sends requests in turn
 * to two threads, and then each line that both write moves at each request. The kernel's accesses are not seen.
 *
 * tests/sharing builds it against the libraries of the installed valgrind and gives it orders through vgdb:
 * "begin" and "end FILE". The file has lines of five kinds:
 *
 *   thread ID LWP ACCESSES            valgrind's number, the system's number
 *   line ADDRESS FETCHES TAKES NAME   of 64 bytes; NAME of the static variable there, or -
 *   site KIND THREAD COUNT BYTES      of the line before; KIND is load, store or atomic, BYTES a mask of those accessed
 *   frame TEXT                        of the site before, the innermost first
 *   lost N                            accesses that found no room for their site
 */

#include "pub_tool_basics.h"
#include "pub_tool_debuginfo.h"
#include "pub_tool_gdbserver.h"
#include "pub_tool_hashtable.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_options.h"
#include "pub_tool_stacktrace.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_tooliface.h"
#include "pub_tool_vki.h"
#include "valgrind.h"

/* The core has it, and declares it for itself alone. */
extern void VG_(set_IP)(ThreadId thread, Addr instruction);

#define LINE_SHIFT 6
#define LINE_BYTES (1UL << LINE_SHIFT)
/* Threads have a bit each in a word. */
#define MAX_THREADS 64
#define DEPTH 24
#define MAX_SITES 64

enum { LOAD, STORE, ATOMIC };
static const HChar* const KINDS[] = { "load", "store", "atomic" };

typedef struct Site {
   struct Site* next;
   UInt kind, thread, frames;
   ULong count, bytes;
   Addr ips[DEPTH];
} Site;

typedef struct {
   VgHashNode node; /* The key is the number of the line. */
   ULong holders;   /* Threads whose caches have it. */
   UInt writer;     /* The last that stored to it, or 0. */
   UInt sites_count;
   ULong fetches, takes;
   Site* sites;
} Line;

static Bool is_recording = False;
static VgHashTable* lines = NULL;
static UInt lwps[MAX_THREADS];
static ULong accesses[MAX_THREADS];
static ULong lost;

static Line* line_of(UWord number)
{
   Line* line = VG_(HT_lookup)(lines, number);
   if (!line) {
      line = VG_(calloc)("sharing.line", 1, sizeof *line);
      line->node.key = number;
      VG_(HT_add_node)(lines, line);
   }
   return line;
}

static void note_site(Line* line, UInt kind, UInt thread, ULong bytes, Addr instruction)
{
   Addr ips[DEPTH];
   /* Within a block it may be that of an earlier one, and the stack is unwound from there. */
   VG_(set_IP)(thread, instruction);
   UInt frames = VG_(get_StackTrace)(thread, ips, DEPTH, NULL, NULL, 0);
   Site* site;
   for (site = line->sites; site; site = site->next)
      if (site->kind == kind && site->thread == thread && site->frames == frames
          && VG_(memcmp)(site->ips, ips, frames * sizeof *ips) == 0)
         break;
   if (!site) {
      if (line->sites_count == MAX_SITES) {
         lost++;
         return;
      }
      site = VG_(calloc)("sharing.site", 1, sizeof *site);
      site->kind = kind;
      site->thread = thread;
      site->frames = frames;
      VG_(memcpy)(site->ips, ips, frames * sizeof *ips);
      site->next = line->sites;
      line->sites = site;
      line->sites_count++;
   }
   site->count++;
   site->bytes |= bytes;
}

static void touch(UWord number, UInt kind, UInt thread, ULong bytes, Addr instruction)
{
   Line* line = line_of(number);
   ULong own = 1ULL << thread;
   Bool moves;
   if (kind == LOAD) {
      moves = line->writer && !(line->holders & own);
      line->holders |= own;
      line->fetches += moves;
   } else {
      moves = (line->holders & ~own) != 0;
      line->holders = own;
      line->writer = thread;
      line->takes += moves;
   }
   if (moves)
      note_site(line, kind, thread, bytes, instruction);
}

static void access(Addr address, UWord size, UWord kind, Addr instruction)
{
   if (!is_recording)
      return;
   UInt thread = VG_(get_running_tid)();
   tl_assert(thread < MAX_THREADS);
   if (!lwps[thread])
      lwps[thread] = VG_(gettid)();
   accesses[thread]++;
   while (size > 0) {
      UWord within = address & (LINE_BYTES - 1);
      UWord part = size < LINE_BYTES - within ? size : LINE_BYTES - within;
      ULong bytes = (part == 64 ? ~0ULL : (1ULL << part) - 1) << within;
      touch(address >> LINE_SHIFT, kind, thread, bytes, instruction);
      address += part;
      size -= part;
   }
}

/* Adds a call of `access` before a statement of the instruction at `instruction`. */
static void add_call(IRSB* block, const VexGuestLayout* layout, Addr instruction, IRExpr* address, Int size, UInt kind,
                     IRExpr* guard)
{
   IRExpr** arguments =
      mkIRExprVec_4(address, mkIRExpr_HWord(size), mkIRExpr_HWord(kind), mkIRExpr_HWord(instruction));
   IRDirty* call = unsafeIRDirty_0_N(0, "access", VG_(fnptr_to_fnentry)(&access), arguments);
   if (guard)
      call->guard = guard;
   /* What a stack is found by has to be in its place then. */
   const Int places[3][2] = {
      { layout->offset_SP, layout->sizeof_SP },
      { layout->offset_FP, layout->sizeof_FP },
      { layout->offset_IP, layout->sizeof_IP },
   };
   call->nFxState = 3;
   for (UInt at = 0; at < 3; at++) {
      VG_(memset)(&call->fxState[at], 0, sizeof call->fxState[at]);
      call->fxState[at].fx = Ifx_Read;
      call->fxState[at].offset = places[at][0];
      call->fxState[at].size = places[at][1];
   }
   addStmtToIRSB(block, IRStmt_Dirty(call));
}

/* Returns whether the instruction that begins here has an atomic operation. It loads first, but takes the line at
 * once. */
static Bool is_atomic(const IRSB* block, Int mark)
{
   for (Int at = mark + 1; at < block->stmts_used; at++) {
      const IRStmt* statement = block->stmts[at];
      if (statement && statement->tag == Ist_IMark)
         return False;
      if (statement && statement->tag == Ist_CAS)
         return True;
   }
   return False;
}

static IRSB* instrument(VgCallbackClosure* closure, IRSB* in, const VexGuestLayout* layout,
                        const VexGuestExtents* extents, const VexArchInfo* host, IRType guest_word, IRType host_word)
{
   IRSB* out = deepCopyIRSBExceptStmts(in);
   IRTypeEnv* types = in->tyenv;
   Bool within_atomic = False;
   Addr instruction = 0;
   for (Int at = 0; at < in->stmts_used; at++) {
      IRStmt* statement = in->stmts[at];
      if (!statement)
         continue;
      switch (statement->tag) {
      case Ist_IMark:
         within_atomic = is_atomic(in, at);
         instruction = statement->Ist.IMark.addr;
         break;
      case Ist_WrTmp: {
         IRExpr* data = statement->Ist.WrTmp.data;
         if (data->tag == Iex_Load && !within_atomic)
            add_call(out, layout, instruction, data->Iex.Load.addr, sizeofIRType(data->Iex.Load.ty), LOAD, NULL);
         break;
      }
      case Ist_Store: {
         IRType type = typeOfIRExpr(types, statement->Ist.Store.data);
         add_call(out, layout, instruction, statement->Ist.Store.addr, sizeofIRType(type), STORE, NULL);
         break;
      }
      case Ist_StoreG: {
         IRStoreG* store = statement->Ist.StoreG.details;
         IRType type = typeOfIRExpr(types, store->data);
         add_call(out, layout, instruction, store->addr, sizeofIRType(type), STORE, store->guard);
         break;
      }
      case Ist_LoadG: {
         IRLoadG* load = statement->Ist.LoadG.details;
         IRType type = Ity_INVALID, widened = Ity_INVALID;
         typeOfIRLoadGOp(load->cvt, &widened, &type);
         add_call(out, layout, instruction, load->addr, sizeofIRType(type), LOAD, load->guard);
         break;
      }
      case Ist_Dirty: {
         IRDirty* dirty = statement->Ist.Dirty.details;
         if (dirty->mFx == Ifx_Read || dirty->mFx == Ifx_Modify)
            add_call(out, layout, instruction, dirty->mAddr, dirty->mSize, LOAD, dirty->guard);
         if (dirty->mFx == Ifx_Write || dirty->mFx == Ifx_Modify)
            add_call(out, layout, instruction, dirty->mAddr, dirty->mSize, STORE, dirty->guard);
         break;
      }
      case Ist_CAS: {
         IRCAS* cas = statement->Ist.CAS.details;
         Int size = sizeofIRType(typeOfIRExpr(types, cas->dataLo));
         add_call(out, layout, instruction, cas->addr, cas->dataHi ? 2 * size : size, ATOMIC, NULL);
         break;
      }
      default:
         break;
      }
      addStmtToIRSB(out, statement);
   }
   return out;
}

static void begin(void)
{
   if (lines) {
      VG_(HT_ResetIter)(lines);
      for (Line* line; (line = VG_(HT_Next)(lines));)
         for (Site *site = line->sites, *next; site; site = next) {
            next = site->next;
            VG_(free)(site);
         }
      VG_(HT_destruct)(lines, VG_(free));
   }
   lines = VG_(HT_construct)("sharing.lines");
   VG_(memset)(lwps, 0, sizeof lwps);
   VG_(memset)(accesses, 0, sizeof accesses);
   lost = 0;
   is_recording = True;
}

static void print_frames(VgFile* file, const Site* site)
{
   DiEpoch now = VG_(current_DiEpoch)();
   for (UInt at = 0; at < site->frames; at++) {
      /* A return address belongs to the call before it. */
      Addr ip = at == 0 ? site->ips[at] : site->ips[at] - 1;
      InlIPCursor* cursor = VG_(new_IIPC)(now, ip);
      do
         VG_(fprintf)(file, "frame %s\n", VG_(describe_IP)(now, ip, cursor));
      while (VG_(next_IIPC)(cursor));
      VG_(delete_IIPC)(cursor);
   }
}

static Bool end(const HChar* path)
{
   is_recording = False;
   VgFile* file = VG_(fopen)(path, VKI_O_CREAT | VKI_O_TRUNC | VKI_O_WRONLY, VKI_S_IRUSR | VKI_S_IWUSR);
   if (!file || !lines)
      return False;
   for (UInt thread = 0; thread < MAX_THREADS; thread++)
      if (lwps[thread])
         VG_(fprintf)(file, "thread %u %u %llu\n", thread, lwps[thread], accesses[thread]);
   VG_(HT_ResetIter)(lines);
   for (Line* line; (line = VG_(HT_Next)(lines));) {
      if (!line->sites)
         continue;
      Addr address = line->node.key << LINE_SHIFT;
      const HChar* name = NULL;
      PtrdiffT offset = 0;
      if (!VG_(get_datasym_and_offset)(VG_(current_DiEpoch)(), address, &name, &offset))
         name = "-";
      VG_(fprintf)(file, "line %#lx %llu %llu %s\n", address, line->fetches, line->takes, name);
      for (const Site* site = line->sites; site; site = site->next) {
         VG_(fprintf)(file, "site %s %u %llu %#llx\n", KINDS[site->kind], site->thread, site->count, site->bytes);
         print_frames(file, site);
      }
   }
   VG_(fprintf)(file, "lost %llu\n", lost);
   VG_(fclose)(file);
   return True;
}

static Bool handle_request(ThreadId thread, UWord* words, UWord* result)
{
   if (words[0] != VG_USERREQ__GDB_MONITOR_COMMAND)
      return False;
   const HChar* order = (const HChar*)words[1];
   *result = 1;
   if (VG_(strcmp)(order, "begin") == 0)
      begin();
   else if (VG_(strncmp)(order, "end ", 4) == 0) {
      if (!end(order + 4))
         VG_(gdb_printf)("sharing: %s cannot be written\n", order + 4);
   } else
      *result = 0;
   return *result != 0;
}

static void start(void) {}
static void finish(Int status) {}

static void initialize(void)
{
   VG_(details_name)("sharing");
   VG_(details_version)(NULL);
   VG_(details_description)("cache lines that threads share");
   VG_(details_copyright_author)("The authors of Dunlin.");
   VG_(details_bug_reports_to)("the authors of Dunlin");
   VG_(details_avg_translation_sizeB)(600);
   VG_(basic_tool_funcs)(start, instrument, finish);
   VG_(needs_client_requests)(handle_request);
}

VG_DETERMINE_INTERFACE_VERSION(initialize)
