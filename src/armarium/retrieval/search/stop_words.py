"""Stop words of the languages with a stemmer: they identify the language of a text and are dropped from queries."""

from __future__ import annotations

from typing import Final

_WORDS: Final = {
    "english": """a about all also am an and any are as at be been before being between but by can could did do
        does for from give had has have he her his how i if in into is it its may me might more most my no not of
        on only or other our s shall she should so some such t than that the their them then there these they this
        those to us was we were what when where which while who whom whose why will with would you your""",
    "spanish": """a al algunos ante aunque como con cual cuando cuanto cuantos cuál cuáles cuándo cuántas cuántos
        cómo de del desde donde dos durante dónde e el ella ellos en entre era es esa ese esta este esto está están
        fue fueron ha había han hasta hay la las le les lo los mas muy más ni no nos o otra otro para pero por
        porque que quien quién qué se según ser si sido sin sobre son su sus también tiene un una uno y ya""",
    "french": """a au aux avec c ce ces cette comme comment d dans de des deux dont du elle elles en entre est et
        eu il ils j je l la le les leur leurs lui m mais même n ne nous on ont ou où par pas plus pour pourquoi qu
        quand que quel quelle quelles quels qui quoi s sa sans se ses si son sont sur tout très un une vous y à
        était été être""",
    "german": """ab aber als also am an auch auf aus bei beim bis da damit das dass dem den der des die dies diese
        dieser dieses doch durch ein eine einem einen einer eines er es für gab hat hatte hatten ihr ihre im in ist
        kann kein man mehr mit nach nicht noch nur ob oder sehr sein seine sich sie sind so um und unter vom von
        vor wann war waren warum was welche welchem welchen welcher welches wer wie wird wo wurde wurden zu zum zur
        zwischen über""",
    "italian": """a ad agli ai al alla alle allo anche che chi ci come con cosa così cui da dai dal dalla dalle
        degli dei del della delle dello di dove due e ed era erano essere fra gli ha hanno i il in io l la le lo
        loro ma nei nel nella nelle non o ogni per perché più quale quali quando quanti quanto quella quello questa
        questo se si sia sono stata stato su sua sue sui sul sulla suo tra un una uno è""",
    "portuguese": """a ao aos as até com como da das de dela dele do dos e ela ele eles em entre era essa esse esta
        este está foi foram há isso já la mais mas mesmo muito na nas nem no nos não o onde os ou para pela pelas
        pelo pelos por porque quais qual quando quantas quantos que quem se sem ser seu seus sobre sua suas são
        também tem um uma à às é""",
    "dutch": """aan al als andere bij daar dan dat de der deze die dit door een en er geen had heeft hem het hij
        hoe hun ik in is je kan maar meer men met na naar niet nog nu of om onder ook op over te tot tussen uit van
        veel voor waar waarom wanneer waren was wat welke werd werden wie worden wordt ze zich zij zijn zo""",
    "swedish": """alla att av blev bli blir de dem den denna deras det detta dig din dock du där efter ej eller en
        ett från för genom ha hade han har hon hur här i inte jag kan man med mellan men mot mycket när någon några
        och om på samma sedan sig sin sina sitt som så till under upp ut utan vad var vara varför vem vid vilka
        vilken vilket är över""",
    "danish": """af alle at blev blive bliver da de dem den denne der deres det dette dig din du efter eller en end
        er et for fra gennem ham han hans har havde hun hvad hvem hver hvilke hvilken hvor hvordan hvorfor i ikke
        ind jeg kan man med meget mellem men mere mod nogle nu når og også om op over på sig sin skal som så til ud
        under var ved vil være""",
    "norwegian": """alle at av ble bli blir da de dem den denne der deres det dette du eller en enn er et etter for
        fra gjennom ha hadde han hans har hun hva hvem hver hvilke hvilken hvilket hvor hvordan hvorfor i ikke inn
        jeg kan man med meget mellom men mer mot mye noe noen nå når og også om opp over på seg sin skal som så til
        under ut var ved vil være""",
    "finnish": """ei eivät eli että he hän hänen ja joka jonka jos jossa jotka kanssa koska kuin kuinka kuitenkin
        kuka kun kuten me mikä millainen milloin minkä missä mistä mitkä mitä mukaan mutta myös niiden niin noin
        nyt oli olivat olla ollut on ovat paljon se sekä sen siitä sillä sitä tai tämä tämän vaan vain voi""",
    "hungarian": """a az azok azt csak de e egy ez ezek ezt hanem hogy hogyan hol is itt ki kik között le lehet
        lesz meg mely melyik mert mi mikor milyen mint mit mivel miért már még nagy ne nem sem szerint több után
        vagy van volna volt voltak által és össze ő ők""",
    "romanian": """a această aceea acest aceste acestui acum ai al ale am are au care ce cei cel cele cine cu cum
        când cât câte câtă câți că către da dar de decât despre din dintre după ea ei el ele era este eu fi fie
        fost la le lor lui mai mult ne nici nu o ori pe pentru prin sa sale sau se su sub sunt un una unde unei
        unui îi îl în între și""",
    "turkish": """ama ancak bir biri birçok bu da daha de değil diye en gibi göre hangi hangisi hem her ile ise
        için kadar kaç ki kim mi mu mü mı nasıl ne neden nedir nerede nereye o olan olarak oldu olduğu olmak olup
        ona onun sonra tarafından var ve veya ya yok çok şey şu""",
    "russian": """а без более бы был была были было быть в вам вас во вот все всех вы где да для до его ее если
        есть еще же за и из или им их к как какая какие какого какой ко когда которая которые который кто ли между
        меня мне мы на не нет ни но о об он она они оно от по под после при с сколько со так также то того только
        том у уже чем что чтобы это этого этой этот я""",
    "greek": """ένα ένας έχει έχουν ή ήταν αλλά αν από για δεν είναι ενώ επίσης η θα κάθε και κατά μία μας με μετά
        μια να ο οι ποια ποιες ποιο ποιοι ποιον ποιος που πού πριν προς πως πόσα πόσες πόσο πόσοι πώς σε στα στη
        στην στις στο στον στους τα τη την της τι τις το τον του τους των ως όπως όταν ότι""",
    "arabic": """أن أو أي أين إلى إن ال الا التي الذي الذين اين بعد بن به بها بين تم ثم حتى خلال ذلك سنة عام عدد
        على عن عند غير في فيه فيها قبل قد كان كانت كل كم كما كيف لا لم لماذا له لها ليس ما ماذا متى مع من منذ منه
        منها نحو هذا هذه هل هم هو هي و وقد وكان ولا ومن وهو وهي يكون""",
}

STOP_WORDS: Final = {language: frozenset(words.split()) for language, words in _WORDS.items()}
